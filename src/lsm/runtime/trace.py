"""Records every edge that is taken, one line of JSON for each, so that a run can be checked against the tables afterwards.

Several processes may record into one file: it is opened for appending, and a line is one write.  `lsm.verify` reads it; what each field
is, there and in the tables, stands in `lsm.verify.record`.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

from lsm.runtime.executor import Fired

log = logging.getLogger(__name__)


class Recorder:
    """An observer for `Executor`.  Whoever does not want a trace passes no observer at all.

    Raises OSError when `path` cannot be opened.  If writing fails later (a full disk), it says so once and stops recording:
    the machines must go on.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._run = time.monotonic_ns()  # a container's only process has the same id after each restart

    def __call__(self, fired: Fired) -> None:
        if self._fd < 0:
            return
        line = line_of(fired, os.getpid(), self._run)
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written")
        except OSError as error:
            log.error("The trace %s ends here: %s", self._path, error)
            self.close()

    def close(self) -> None:
        """Further edges are not recorded.  Closing twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def line_of(fired: Fired, pid: int, run: int = 0) -> bytes:
    """`fired` as one line of JSON, with its line feed.  `run` tells recorders with the same `pid` apart."""
    record = {
        "t_ns": fired.t_ns,
        "pid": pid,
        "run": run,
        "machine": fired.machine,
        "subject": fired.subject,
        "from": fired.source,
        "event": fired.event,
        "facts": dict(fired.facts),
        "to": fired.target,
        "do": list(fired.effects),
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
