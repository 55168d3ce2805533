"""The real soak: servers that take turns while processes die, freeze and come in between.  Run it with `python -m tests.bench.soak`."""
