"""`python -m tests.transports.scripted_mcp`: lsm-mcp over the scripted host, for a client that starts a process.

The host prints while it opens and ends, as a library might: the protocol must not be touched by it.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lsm_mcp.command import main

from lsm.config import Settings
from tests.transports.scripted_host import ScriptedHost, open_scripted_host


@asynccontextmanager
async def open_noisy_host(settings: Settings) -> AsyncIterator[ScriptedHost]:
    print("the host opens", flush=True)
    async with open_scripted_host(settings) as host:
        yield host
    print("the host ends", flush=True)


sys.exit(main(open_host=open_noisy_host))
