"""A blocking driver of a line, for programs without an event loop."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from lsm.arena.line import Line

_PAUSE_MIN_S, _PAUSE_MAX_S = 0.0002, 0.02


def retry_pauses_s() -> Iterator[float]:
    """How long to pause between tries where nothing can be waited for: a busy door, a token whose holder is just dying.

    Short at first, because both are over in an instant as a rule; never long, because a frozen process in the door is no reason
    to miss its end.
    """
    pause_s = _PAUSE_MIN_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def wait(line: Line, cancel_fd: int = -1) -> bool:
    """Join the line, wait for our turn, take the token. False: `cancel_fd` became readable, and we have left the line.

    Raises ArenaError, or OSError when no ticket can be made (full disk); then too we have left.
    RuntimeError: the line already has a ticket, and keeps it.
    """
    if line.number:
        raise RuntimeError(f"wait: this line already has ticket {line.number}")
    try:
        won = _join(line, cancel_fd) and _reach_the_front(line, cancel_fd) and _take(line, cancel_fd)
    except BaseException:
        line.leave()
        raise
    if not won:
        line.leave()
    return won


def _join(line: Line, cancel_fd: int) -> bool:
    pauses_s = retry_pauses_s()
    while not line.door_try():
        if not _sleep(-1, cancel_fd, next(pauses_s)):
            return False
    line.ticket_make()
    line.ticket_lock()
    line.door_open()
    line.bell_ring()
    return True


def _reach_the_front(line: Line, cancel_fd: int) -> bool:
    while (fd := line.ahead()) >= 0:
        try:
            go_on = _sleep(fd, cancel_fd, None)
        finally:
            os.close(fd)
        if not go_on:
            return False
    return True


def _take(line: Line, cancel_fd: int) -> bool:
    pauses_s = retry_pauses_s()
    while not line.token_try():
        if not _sleep(-1, cancel_fd, next(pauses_s)):
            return False
    line.want_drop()
    return True


def _sleep(hang_up_fd: int, cancel_fd: int, pause_s: float | None) -> bool:
    """Until the one hangs up or the time is over: True. Until the other is readable: False."""
    sleeper = select.poll()
    if hang_up_fd >= 0:
        sleeper.register(hang_up_fd, 0)  # A hang-up is always reported.
    if cancel_fd >= 0:
        sleeper.register(cancel_fd, select.POLLIN)
    events = sleeper.poll(None if pause_s is None else pause_s * 1e3)
    return all(fd != cancel_fd for fd, _ in events)
