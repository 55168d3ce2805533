"""`lsm-server` with a door that serves nothing, run as a process of its own to be signalled: `python -m tests.cli.signalled_server HOW`.

`polite` ends when it is cancelled; `stubborn` never does, like a server whose client does not let go; `impatient` is as stubborn, with a
last resort after a tenth of a second.
"""

from __future__ import annotations

import sys

import lsm_http
import trio
from lsm_cli import server

from lsm.config import Settings


async def serve(_: Settings) -> None:
    print("up", flush=True)
    try:
        await trio.sleep_forever()
    finally:
        print("leaving", flush=True)
        with trio.CancelScope(shield=sys.argv[1] != "polite"):
            await trio.sleep_forever()


if sys.argv[1] == "impatient":
    server.STOP_WITHIN_S = 0.1
lsm_http.serve = serve  # type: ignore[assignment]
status = server.run(["-m", "none.gguf"], {})
print("left", flush=True)
sys.exit(status)
