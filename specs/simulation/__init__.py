"""The parts of `specs.simulate`: everything around the real owner and the real line that is not real."""
