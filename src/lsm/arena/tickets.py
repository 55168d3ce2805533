"""Tickets: FIFOs in `line/`, each flocked by its owner for as long as it lives.

A name is the number, then a dot and the owner's label: `000000000042.qwen3-4b`. The label rides in the name so that it needs
no file, no disk space and no clean-up of its own; nobody decides anything by it.

A ticket is locked exclusively once, at birth, in the door; so it goes from alive to gone once, for good, and a look at it needs
no atomicity. Numbers only have to grow among the living: there is no counter to keep, and names are probed, never remembered.
Every function takes `line_fd`, a descriptor of the `line/` directory.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from lsm.arena.flock import try_shared

# A file name holds 255 bytes; quoting triples a byte at worst.
LABEL_SIZE_BYTES = 64
_NAME = re.compile(r"(\d{12})(?:\.(.*))?")


class Ticket(NamedTuple):
    number: int
    name: str
    label: str


def name_of(number: int, label: str = "") -> str:
    """The file name of a ticket. A label that is too long is cut."""
    short = label.encode(errors="replace")[:LABEL_SIZE_BYTES].decode(errors="ignore")
    return f"{number:012d}.{quote(short, safe='')}" if short else f"{number:012d}"


def parse_name(name: str) -> Ticket | None:
    """The ticket behind a file name; None for a file that is none of ours."""
    found = _NAME.fullmatch(name)
    return Ticket(int(found[1]), name, unquote(found[2] or "")) if found else None


def list_tickets(line_fd: int) -> list[Ticket]:
    """All tickets, dead ones too, lowest number first."""
    return sorted(ticket for ticket in map(parse_name, os.listdir(line_fd)) if ticket)


def open_if_alive(line_fd: int, name: str) -> int:
    """The ticket opened for reading, if its owner lives; else -1, and that is for good. The caller closes it."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=line_fd)
    except FileNotFoundError:
        return -1
    try:
        alive = not try_shared(fd)
    except BaseException:
        os.close(fd)
        raise
    if alive:
        return fd
    os.close(fd)
    return -1


def nearest_alive_below(line_fd: int, number: int) -> int:
    """A descriptor of the nearest live ticket below `number`, which hangs up when its owner lets go; -1: there is none."""
    for ticket in reversed(list_tickets(line_fd)):
        if ticket.number < number and (fd := open_if_alive(line_fd, ticket.name)) >= 0:
            return fd
    return -1


def sweep(line_fd: int) -> int:
    """Unlink the tickets of the dead and return the highest live number, 0 if there is none. Only in the door: nobody is being born."""
    highest = 0
    for ticket in list_tickets(line_fd):
        fd = open_if_alive(line_fd, ticket.name)
        if fd >= 0:
            os.close(fd)
            highest = ticket.number
        else:
            unlink(line_fd, ticket.name)
    return highest


def create(line_fd: int, name: str) -> int:
    """Make the FIFO and open both of its ends: ours is the writing end whose closing others hear. OSError leaves nothing behind."""
    os.mkfifo(name, 0o600, dir_fd=line_fd)
    try:
        return os.open(name, os.O_RDWR | os.O_NONBLOCK, dir_fd=line_fd)
    except BaseException:
        unlink(line_fd, name)
        raise


def unlink(line_fd: int, name: str) -> None:
    """A directory with the name of a ticket is nobody's ticket: it stays, and counts as dead."""
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=line_fd)
