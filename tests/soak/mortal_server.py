"""`lsm-server` that kills itself: `python -m tests.soak.mortal_server STATE N flags...`

At the Nth time that its token machine comes into STATE, after the edge was recorded and before any of its effects.  Some states last a
fraction of a millisecond; from outside nobody can hit them.
"""

from __future__ import annotations

import os
import signal
import sys

from lsm_cli.server import run

from lsm.runtime.executor import Fired
from lsm.runtime.trace import Recorder


def die_in(state: str, times: int) -> None:
    record = Recorder.__call__
    came = 0

    def record_and_die(self: Recorder, fired: Fired) -> None:
        nonlocal came
        record(self, fired)
        if fired.machine == "token" and fired.target == state != fired.source:
            came += 1
            if came == times:
                os.kill(os.getpid(), signal.SIGKILL)

    Recorder.__call__ = record_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    die_in(sys.argv[1], int(sys.argv[2]))
    sys.exit(run(sys.argv[3:], os.environ))
