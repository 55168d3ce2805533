"""The ledger: who has how many bytes of device memory, one page for each model, and a bell on each page.

    ledger/000042.label    the page; its owner keeps an exclusive lock on it, so a page without a lock is a dead owner's
    bells/000042.label     a FIFO that the owner reads; whoever holds the token and needs room locks it, and rings

To be asked is a lock as well: shared for some of the memory, exclusive for all of it.  The owner tries the lock that would be refused.
So there is nothing to miss and nothing to go stale, and what a dead process has asked for, the kernel takes back.

Pages are born and swept only by the holder of the token, so a page that is not locked yet is met by nobody.  A page grows only while its
owner has the token; it shrinks at any time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lsm.arena.directory import open_directory
from lsm.arena.flock import try_exclusive, try_shared, unlock
from lsm.arena.pages import Page, read_page, write_page
from lsm.arena.tickets import LABEL_SIZE_BYTES
from lsm.arena.victims import Ask
from lsm.errors import ArenaError

PAGES, BELLS = "ledger", "bells"
_NAME = re.compile(r"(\d{6,9})\.(.*)")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NOBODYS = (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO)  # it has left; or a link, a directory, a socket: no page of ours
_FILE = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of somebody else.  `alive` is False once its owner has died; its memory may still be on the device."""

    name: str
    number: int
    label: str
    alive: bool
    page: Page


class Ledger:
    """One model's place in the ledger of one arena.  Every method returns at once; one thread at a time.

    Raises ArenaError when the directory cannot be used, or holds what lsm has not written; OSError when the disk is full.
    """

    def __init__(self, arena: Path | str, label: str = "") -> None:
        self.arena = Path(arena)
        self.label = label
        self.page = Page(pid=os.getpid())
        self._name = ""
        self._sequence = 0
        self._page_fd = self._bell_fd = self._probe_fd = -1
        self._asked: dict[str, tuple[int, Ask]] = {}  # whom we ask: the bell, opened, and how it is locked
        self._arena_fd = open_directory(self.arena)
        _open_ledgers.add(self)

    # ---- our own page ---------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Of our page; 0 before `open_page`."""
        return number_of(self._name) if self._name else 0

    @property
    def bell_fd(self) -> int:
        """Readable when somebody asks for our memory; -1 before `open_page`."""
        return self._bell_fd

    def open_page(self) -> None:
        """Make our page, if there is none.  Only for the holder of the token."""
        if self._name:
            return
        for directory in (PAGES, BELLS):
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, 0o700, dir_fd=self._arena_fd)
        with self._directory(PAGES) as pages_fd, self._directory(BELLS) as bells_fd:
            pages, bells = os.listdir(pages_fd), os.listdir(bells_fd)
            for name in set(bells) - set(pages):  # its owner died at birth
                if _NAME.fullmatch(name):
                    self.sweep(name)
            taken = [int(found[1]) for name in (*pages, *bells) if (found := _NAME.fullmatch(name))]
            name = name_of(1 + max(taken, default=0), self.label)
            with contextlib.ExitStack() as undo:
                os.mkfifo(name, 0o600, dir_fd=bells_fd)
                undo.callback(os.unlink, name, dir_fd=bells_fd)
                bell_fd = _opened(undo, name, _FILE, bells_fd)
                probe_fd = _opened(undo, name, _FILE, bells_fd)
                page_fd = _opened(undo, name, _FILE | os.O_CREAT | os.O_EXCL, pages_fd)
                undo.callback(os.unlink, name, dir_fd=pages_fd)
                if not try_exclusive(page_fd):
                    raise ArenaError(f"arena {self.arena}: another program locks pages in {PAGES}/; look at /proc/locks instead")
                for sequence in (self._sequence + 1, self._sequence + 2):  # both slots: no later write needs room on the disk
                    write_page(page_fd, self.page, sequence)
                undo.pop_all()
        self._name, self._sequence = name, self._sequence + 2
        self._page_fd, self._bell_fd, self._probe_fd = page_fd, bell_fd, probe_fd

    def write(self, **changes: Any) -> None:
        """Change fields of our page.  To grow takes the token; without a page nothing is written."""
        page = replace(self.page, **changes)
        if self._name and page != self.page:
            write_page(self._page_fd, page, self._sequence + 1)
            self._sequence += 1
        self.page = page

    def asked(self) -> Ask:
        """What a live holder of the token wants of us just now.  An arena that was deleted wants all: nobody can see our page."""
        if not self._name:
            return Ask.NOTHING
        if os.fstat(self._page_fd).st_nlink == 0:
            return Ask.ALL
        for try_lock, refused in ((try_shared, Ask.ALL), (try_exclusive, Ask.SOME)):
            if not try_lock(self._probe_fd):
                unlock(self._probe_fd)
                return refused
        unlock(self._probe_fd)
        return Ask.NOTHING

    def bell_hear(self) -> None:
        """Empty the bell, so that the next ring is heard."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell_fd, 4096):
                pass

    def asker(self) -> tuple[str, int] | None:
        """Label of somebody who says that it asks us, and how many bytes it misses: for people.  Touches no lock."""
        with contextlib.suppress(OSError):
            for name, page in peek(self._arena_fd):
                if self.number in page.asks:
                    return label_of(name), page.needs
        return None

    # ---- the pages of others: only for the holder of the token ------------------------------------------------------------------

    def others(self) -> list[Entry]:
        """All pages but ours, those of the dead too; files that are none of ours are passed over."""
        try:
            pages = self._directory(PAGES)
            with pages as pages_fd:
                return [entry for entry in map(lambda name: self._entry(pages_fd, name), sorted(os.listdir(pages_fd))) if entry]
        except FileNotFoundError:
            return []

    def ask(self, name: str, ask: Ask) -> bool:
        """Lock somebody's bell, and ring it, again each time.  False: its owner is just looking, try again soon."""
        fd, had = self._asked.get(name, (-1, Ask.NOTHING))
        if fd < 0:
            try:
                fd = self._open_bell(name)
            except OSError as error:
                return error.errno in _NOBODYS  # it has left: there is nobody to ask; else we have no descriptor just now
        if ask != had:
            unlock(fd)
            had = ask if (try_exclusive if ask is Ask.ALL else try_shared)(fd) else Ask.NOTHING
        self._asked[name] = fd, had
        with contextlib.suppress(OSError):
            os.write(fd, b"!")
        return had == ask

    def asks(self) -> dict[str, Ask]:
        """Whom we ask at present."""
        return {name: ask for name, (_, ask) in self._asked.items()}

    def withdraw(self, *names: str) -> None:
        """Stop asking these."""
        for name in names:
            if name in self._asked:
                os.close(self._asked.pop(name)[0])

    def sweep(self, name: str) -> None:
        """Remove the page of a dead owner, whose memory has been seen to be free."""
        for directory in (PAGES, BELLS):
            with contextlib.suppress(OSError), self._directory(directory) as fd:
                os.unlink(name, dir_fd=fd)

    # ---- the end ------------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop asking, give up our page, close every descriptor.  A second call does nothing."""
        if self in _open_ledgers:
            _open_ledgers.discard(self)
            self.withdraw(*self._asked)
            if self._name:
                self.sweep(self._name)
            self._abandon()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _abandon(self) -> None:
        """Close the descriptors; in a forked child, where the locks are the parent's, nothing else."""
        for fd in (self._page_fd, self._bell_fd, self._probe_fd, self._arena_fd, *(fd for fd, _ in self._asked.values())):
            if fd >= 0:
                os.close(fd)
        self._page_fd = self._bell_fd = self._probe_fd = self._arena_fd = -1
        self._name, self._asked = "", {}

    # ---- helpers --------------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _directory(self, name: str) -> Iterator[int]:
        fd = os.open(name, _DIRECTORY, dir_fd=self._arena_fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_bell(self, name: str) -> int:
        with self._directory(BELLS) as bells_fd:
            fd = os.open(name, _FILE, dir_fd=bells_fd)
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise FileNotFoundError(name)

    def _entry(self, pages_fd: int, name: str) -> Entry | None:
        found = _NAME.fullmatch(name)
        if found is None or name == self._name:
            return None
        try:
            fd = os.open(name, _FILE, dir_fd=pages_fd)
        except OSError as error:
            if error.errno in _NOBODYS:
                return None
            raise  # without descriptors we see nothing, and must not take it for an empty ledger
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            alive = not try_shared(fd)
            read = read_page(fd)
        finally:
            os.close(fd)
        if read is None and alive:
            remedy = "end the program that holds it, and remove it"
            raise ArenaError(f"arena {self.arena}: {PAGES}/{name} is locked, but no page of lsm; {remedy}")
        return Entry(name, number_of(name), label_of(name), alive, read[1] if read else Page())


def peek(arena_fd: int) -> list[tuple[str, Page]]:
    """Name and content of every page that can be read, of the dead too, without touching a lock."""
    pages: list[tuple[str, Page]] = []
    with contextlib.suppress(FileNotFoundError), contextlib.ExitStack() as files:
        pages_fd = _opened(files, PAGES, _DIRECTORY, arena_fd)
        for name in sorted(filter(_NAME.fullmatch, os.listdir(pages_fd))):
            with contextlib.suppress(OSError), contextlib.ExitStack() as page_file:
                fd = _opened(page_file, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, pages_fd)
                if stat.S_ISREG(os.fstat(fd).st_mode) and (read := read_page(fd)) is not None:
                    pages.append((name, read[1]))
    return pages


def number_of(name: str) -> int:
    """The number in the name of a page or bell."""
    return int(name.partition(".")[0])


def label_of(name: str) -> str:
    """The label of the model whose page or bell has this name."""
    return unquote(name.partition(".")[2])


def name_of(number: int, label: str) -> str:
    """The file name of a page and of its bell.  A label that is too long is cut."""
    short = label.encode(errors="replace")[:LABEL_SIZE_BYTES].decode(errors="ignore")
    return f"{number:06d}.{quote(short, safe='')}"


def _opened(undo: contextlib.ExitStack, name: str, flags: int, directory_fd: int) -> int:
    fd = os.open(name, flags, 0o600, dir_fd=directory_fd)
    undo.callback(os.close, fd)
    return fd


_open_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _abandon_all() -> None:
    for ledger in list(_open_ledgers):
        ledger._abandon()
    _open_ledgers.clear()


os.register_at_fork(after_in_child=_abandon_all)
