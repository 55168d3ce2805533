"""The kernel of the simulation: the real one, with every call of the arena's code passing through here.

So a process can die between any two calls, as `kill -9` does it: no later call of it takes place, and its descriptors are closed one by
one, in any order.  Calls can fail (no disk space, no descriptors), and rings of the bell can be lost.
Who holds which lock is noted here from what the kernel answered, independent of what `Line` believes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import patch

import trio

import lsm.arena.directory
import lsm.arena.flock
import lsm.arena.ledger
import lsm.arena.line
import lsm.arena.pages
import lsm.arena.tickets
import lsm.runtime.inbox
from specs.simulation.chance import Chance

INTERPOSED: tuple[tuple[ModuleType, str, bool], ...] = (  # where, which module there, whether the process may die before the call
    (lsm.arena.flock, "fcntl", True),
    (lsm.arena.directory, "fcntl", True),
    (lsm.arena.directory, "os", True),
    (lsm.arena.ledger, "os", True),
    (lsm.arena.line, "os", True),
    (lsm.arena.pages, "os", True),
    (lsm.arena.tickets, "os", True),
    (lsm.runtime.inbox, "os", False),  # closes what it watched, also while it is being cancelled
)
CALLS = {"fcntl": ("flock",), "os": ("open", "close", "read", "write", "mkfifo", "mkdir", "unlink", "listdir", "fstat", "utime", "pwrite")}
LOCKS = {fcntl.LOCK_EX: "exclusive", fcntl.LOCK_SH: "shared", fcntl.LOCK_UN: ""}
SCARCE = {"mkfifo": errno.ENOSPC, "open": errno.EMFILE}
TICKET = re.compile(r"\d{12}")
PAGE = re.compile(r"\d{6}\.")


class Killed(BaseException):
    """The process is dead: nothing of it runs any more."""


@dataclass(eq=False, slots=True)
class Process:
    pid: int
    dead: bool = False
    calls_to_live: int = -1  # it dies before so many more calls; -1: it lives
    on_death: Callable[[], None] = lambda: None

    def die(self) -> None:
        self.dead = True
        self.on_death()

    def touch(self) -> None:
        """Whatever a process does to the world begins here."""
        if self.dead:
            raise Killed


@dataclass(eq=False, slots=True)
class Place:
    """One model of one process: what has a `Line` of its own."""

    process: Process
    alias: str
    ticket: int = 0  # while its lock is held

    def __str__(self) -> str:
        return f"{self.alias} (pid {self.process.pid})"


@dataclass(slots=True)
class File:
    place: Place
    name: str
    lock: str = ""


@dataclass(eq=False)
class Kernel:
    chance: Chance
    on_lock: Callable[[Place, str, str], None]  # (whose, which file, "exclusive" | "shared" | "")
    lost_rings: float = 0.0  # probabilities
    scarcity: float = 0.0
    rings_lost: int = 0
    calls: int = 0
    newborn: Place | None = None  # whose line is being opened
    _files: dict[int, File] = field(default_factory=dict)

    def locks(self, place: Place) -> list[str]:
        """Without the share of the directory's lock, which every line keeps, and without what a page of the ledger is kept by."""
        mine = [file for file in self._files.values() if file.place is place and file.lock]
        return [f"{file.name} {file.lock}" for file in mine if not (os.path.isabs(file.name) or PAGE.match(file.name))]

    @contextlib.contextmanager
    def interposed(self) -> Iterator[None]:
        with contextlib.ExitStack() as patches:
            for where, name, mortal in INTERPOSED:
                patches.enter_context(patch.object(where, name, self._proxy(getattr(where, name), CALLS[name], mortal)))
            try:
                yield
            finally:
                for fd in list(self._files):
                    os.close(fd)
                self._files.clear()

    async def bury(self, process: Process) -> None:
        """Close everything that a dead process had open, in any order; others run in between.  None of its tasks may be left."""
        assert process.dead
        fds = [fd for fd, file in self._files.items() if file.place.process is process]
        self.chance.shuffle(fds)
        for fd in fds:
            os.close(fd)
            self._closed(fd)
            await trio.sleep(self.chance.choice((0, 0, 0, 0.0003, 0.01)))

    def _proxy(self, module: ModuleType, names: tuple[str, ...], mortal: bool) -> ModuleType:
        proxy = ModuleType(module.__name__)
        proxy.__dict__.update(module.__dict__)
        for name in names:
            proxy.__dict__[name] = partial(self._call, mortal, name, getattr(module, name))
        return proxy

    def _call(self, mortal: bool, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        place = self._caller(args, kwargs)
        if mortal:
            self._before(place, name)
        if name == "write" and self.chance.random() < self.lost_rings:
            self.rings_lost += 1
            return len(args[1])
        if name == "close":
            real(*args)
            self._closed(args[0])
            return None
        result = real(*args, **kwargs)
        if name == "open":
            self._files[result] = File(place, os.fspath(args[0]))
        elif name == "flock":
            self._locked(self._files[args[0]], LOCKS[args[1] & ~fcntl.LOCK_NB])
        elif name == "unlink" and TICKET.match(args[0]) and place.ticket and int(args[0][:12]) == place.ticket:
            place.ticket = 0  # it has left the line, though its lock is still there
            self.on_lock(place, args[0], "")
        return result

    def _caller(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Place:
        fd = kwargs.get("dir_fd", args[0])
        if isinstance(fd, int):
            return self._files[fd].place
        assert self.newborn is not None, f"nobody calls with {args}"
        return self.newborn

    def _before(self, place: Place, name: str) -> None:
        process = place.process
        process.touch()
        self.calls += 1
        if process.calls_to_live > 0:
            process.calls_to_live -= 1
        elif process.calls_to_live == 0:
            process.die()
            raise Killed
        if name in SCARCE and place is not self.newborn and self.chance.random() < self.scarcity:
            self.rings_lost += name == "open"  # it may have been the bell's
            raise OSError(SCARCE[name], os.strerror(SCARCE[name]))

    def _closed(self, fd: int) -> None:
        file = self._files.pop(fd)
        if file.lock:
            self._locked(file, "")

    def _locked(self, file: File, lock: str) -> None:
        file.lock = lock
        if TICKET.match(file.name):
            if lock == "exclusive":
                file.place.ticket = int(file.name[:12])
            elif file.place.ticket == int(file.name[:12]):
                file.place.ticket = 0
        if not os.path.isabs(file.name):
            self.on_lock(file.place, file.name, lock)
