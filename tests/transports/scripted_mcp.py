"""`python -m tests.transports.scripted_mcp`: lsm-mcp over the scripted host, for a client that starts a process."""

import sys

from lsm_mcp.command import main

from tests.transports.scripted_host import open_scripted_host

sys.exit(main(open_host=open_scripted_host))
