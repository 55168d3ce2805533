"""`python -m lsm_mcp` is `lsm-mcp`."""

import sys

from lsm_mcp.command import main

sys.exit(main())
