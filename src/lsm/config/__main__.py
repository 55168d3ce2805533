"""`python -m lsm.config` writes the reference of the command line, docs/cli.md, to standard output."""

import sys

from lsm.config.reference import markdown

sys.stdout.write(markdown())
