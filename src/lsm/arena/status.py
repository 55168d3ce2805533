"""Who holds the token and who waits, for people and for `/metrics`. Nothing may be decided by it.

It reads `/proc/locks` and never tries a lock: a probe of a newborn ticket would spoil its birth. It sees the processes of its own
pid namespace only; an arena shared with a container shows the rest as if they were not there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lsm.arena.directory import open_directory
from lsm.arena.proc import FileId, device_of, exclusive_owners
from lsm.arena.tickets import list_tickets


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the token. `held_s` is None for a stranger that took it without a ticket."""

    pid: int
    label: str
    held_s: float | None


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who stands in the line, and for how long."""

    pid: int
    label: str
    number: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Status:
    """A glance at one arena; `waiting` is in the order of the line."""

    holder: Holder | None
    waiting: tuple[Waiter, ...]

    @property
    def holder_pid(self) -> int | None:
        return self.holder.pid if self.holder else None

    @property
    def waiting_pids(self) -> tuple[int, ...]:
        return tuple(waiter.pid for waiter in self.waiting)


def status(arena: Path | str) -> Status:
    """Look at an arena, without changing anything in it. Raises ArenaError if it is not there or not ours."""
    with _opened(open_directory(arena, create=False)) as arena_fd:
        taken_at, token = _token(arena_fd)
        tickets = _tickets(arena_fd)
        owners = exclusive_owners(Path("/proc/locks").read_text())
    now = time.time()
    line = [
        Waiter(owners[file], label, number, max(0.0, now - made_at))
        for number, label, made_at, file in tickets
        if file in owners
    ]
    if token not in owners:
        return Status(None, tuple(line))
    pid = owners[token]
    # The holder's ticket is the first one of its process: a line takes the token only when nobody alive is ahead.
    own = next((waiter for waiter in line if waiter.pid == pid), None)
    if own is None:
        return Status(Holder(pid, "", None), tuple(line))
    held_s = min(own.waited_s, max(0.0, now - taken_at))
    return Status(Holder(pid, own.label, held_s), tuple(waiter for waiter in line if waiter is not own))


def _token(arena_fd: int) -> tuple[float, FileId | None]:
    """When the token was last taken (seconds since the epoch), and its identity; None before the first process made it."""
    try:
        about = os.stat("token.lock", dir_fd=arena_fd, follow_symlinks=False)
    except FileNotFoundError:
        return 0.0, None
    return about.st_mtime, FileId(device_of(arena_fd), about.st_ino)


def _tickets(arena_fd: int) -> list[tuple[int, str, float, FileId]]:
    """(number, label, made at, identity) of all tickets, dead ones too, lowest number first."""
    device = device_of(arena_fd)
    found = []
    with contextlib.suppress(FileNotFoundError), _opened(os.open("line", os.O_RDONLY | os.O_DIRECTORY, dir_fd=arena_fd)) as line_fd:
        for ticket in list_tickets(line_fd):
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(ticket.name, dir_fd=line_fd, follow_symlinks=False)
                found.append((ticket.number, ticket.label, about.st_mtime, FileId(device, about.st_ino)))
    return found


@contextlib.contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
