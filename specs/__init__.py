"""The claims about the machines and what checks them: see README.md.  `python -m specs` runs every check."""
