"""What the ledger says, for people and for `/metrics`.  Nothing may be decided by it, and no lock is touched: see `status`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lsm.arena.directory import open_directory
from lsm.arena.ledger import PAGES, label_of, number_of, peek
from lsm.arena.pages import Page
from lsm.arena.proc import FileId, device_of, exclusive_owners


@dataclass(frozen=True, slots=True)
class Account:
    """One model's page.  alive: its owner lives; else its memory is awaited, or nobody has looked since.  asks: labels of those it asks."""

    label: str
    alive: bool
    page: Page
    asks: tuple[str, ...]


def accounts(arena: Path | str) -> tuple[Account, ...]:
    """All pages, the oldest first.  Raises ArenaError if the arena is not there or not ours."""
    arena_fd = open_directory(arena, create=False)
    try:
        pages = dict(peek(arena_fd))
        device, owners = device_of(arena_fd), exclusive_owners(Path("/proc/locks").read_text())
        labels = {number_of(name): label_of(name) for name in pages}
        found = []
        for name, page in pages.items():
            try:
                inode = os.stat(f"{PAGES}/{name}", dir_fd=arena_fd, follow_symlinks=False).st_ino
            except FileNotFoundError:
                continue  # it has left since
            asks = tuple(labels[number] for number in page.asks if number in labels)
            found.append(Account(label_of(name), FileId(device, inode) in owners, page, asks))
        return tuple(found)
    finally:
        os.close(arena_fd)
