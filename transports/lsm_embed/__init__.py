"""The in-process door: trio and blocking, numpy arrays out."""
