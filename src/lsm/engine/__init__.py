"""Inference: slots, batches, the prompt cache within a slot, sampling, text.  Over `native` and numpy; one thread per model calls it."""
