"""Measurements, side by side in one run; never part of the suite.  `python -m tests.bench.NAME --help`."""
