"""The three verbs of `flock` that this room uses, all non-blocking.

Only `flock`, never POSIX record locks: those belong to a process, not to an open file, so two descriptors of one process
would not exclude each other and closing any one of them would drop the lock of all.
A thread that is blocked in `flock` cannot be cancelled from Python, so nothing here ever blocks.
"""

from __future__ import annotations

import fcntl


def try_exclusive(fd: int) -> bool:
    """Lock the open file for us alone. False: somebody else has it."""
    return _try(fd, fcntl.LOCK_EX)


def try_shared(fd: int) -> bool:
    """Lock the open file together with others. False: somebody has it for himself."""
    return _try(fd, fcntl.LOCK_SH)


def unlock(fd: int) -> None:
    """Give the lock back; harmless where there is none."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def _try(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
