"""Long commands that end, with all that they started, as soon as nobody waits for them any more.

pip starts our backend, which starts CMake, which starts ninja, which starts compilers. Whoever kills pip, or the backend, kills that one
process: the compilers would go on for minutes, and the next `pip install` would compile beside them. So the command runs in a process
group of its own under a small guard, which watches the backend and the process that started the backend, and ends the group with them.

`python guard.py DESCRIPTOR,.. COMMAND...` is the guard; the descriptors are pidfds. It imports the standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

ABANDONED = 130
PATIENCE_S = 5.0  # ninja waits for its compilers, which clean up behind themselves
LOOK_EVERY_S = 0.02


def _open_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the kernel (before 5.3) or its jail has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


# Opened when the backend starts: if its parent is killed later, getppid would name a stranger.
_LIFELINES = [fd for pid in (os.getpid(), os.getppid()) if (fd := _open_process(pid)) is not None]


def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status of the command; not 0 either when it was ended because the process that started this one is gone."""
    guard = [sys.executable, "-I", __file__, ",".join(map(str, _LIFELINES)), *command]
    process = subprocess.Popen(guard, env=environ, pass_fds=_LIFELINES)
    try:
        return process.wait()
    except BaseException:
        process.terminate()  # and not kill: it has something to end
        process.wait()
        raise


def watch(command: Sequence[str], lifelines: Sequence[int]) -> int:
    """Run the command until it ends or one of the lifelines does. Ctrl-C, SIGTERM and a hang-up end it too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    child = subprocess.Popen(command, process_group=0)
    try:
        if _is_first_to_end(child, lifelines):
            status = child.wait()
            return status if status >= 0 else 128 - status
    except KeyboardInterrupt:
        pass
    _end_group(child)
    return ABANDONED


def _is_first_to_end(child: subprocess.Popen[bytes], lifelines: Sequence[int]) -> bool:
    own = _open_process(child.pid)
    if own is None:  # then there are no lifelines either
        child.wait()
        return True
    events = select.poll()
    for fd in (own, *lifelines):
        events.register(fd, select.POLLIN)
    return own in {fd for fd, _ in events.poll()}


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Ask the group to end. ninja keeps its compilers in groups of their own, so it needs the time to tell them; then make sure."""
    try:
        os.killpg(child.pid, signal.SIGTERM)
        give_up_at_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at_s:
            child.poll()  # a head that has ended must not count as somebody left
            os.killpg(child.pid, 0)
            time.sleep(LOOK_EVERY_S)
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nobody is left


if __name__ == "__main__":
    sys.exit(watch(sys.argv[2:], [int(fd) for fd in sys.argv[1].split(",") if fd]))
