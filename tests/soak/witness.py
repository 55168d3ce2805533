"""Watches who holds the token and whose memory is in place, in the kernel's books only."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from lsm.arena.proc import FileId, device_of, exclusive_owners
from tests.e2e.observer import rss_bytes
from tests.soak.book import ALONE, DOUBLE

INTERVAL_S = 0.002


class Hold(NamedTuple):
    """One stay at the token.  `taken_ns`: who takes it in the line sets the file's time, so that A, B, A again are three holds."""

    pid: int | None
    taken_ns: int


class Look(NamedTuple):
    """Sizes are not read in one instant: only what held before and after them is evidence."""

    before: Hold
    sizes: Mapping[int, int]  # pid -> resident bytes
    after: Hold


def resident(look: Look, thresholds: Mapping[int, int]) -> list[int]:
    return [pid for pid, size in look.sizes.items() if size > thresholds[pid]]


def judge(look: Look, thresholds: Mapping[int, int]) -> tuple[str, str] | None:
    """A violation and its story.  thresholds: pid -> the bytes above which its weights are in memory."""
    if look.before != look.after:
        return None
    pids = resident(look, thresholds)
    story = f"{look.sizes} bytes resident, thresholds {dict(thresholds)}, token held by {look.before.pid}"
    if len(pids) > 1:
        return DOUBLE, story
    if pids and pids[0] != look.before.pid:
        return ALONE, story
    return None


class Witness:
    """Looks from a thread of its own, and tells `report` of each violation.  Processes are added as they start; the dead have 0 bytes."""

    def __init__(self, arena: Path, report: Callable[[str, str], None]) -> None:
        self._arena = arena
        self._report = report
        self._thresholds: dict[int, int] = {}  # replaced, never changed: the thread may be reading it
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness")
        self.looks = 0
        self.seen: set[int] = set()  # processes that were seen resident

    def watch(self, pid: int, threshold_bytes: int) -> None:
        self._thresholds = {**self._thresholds, pid: threshold_bytes}

    def forget(self, pid: int) -> None:
        """Its number may be given to another process."""
        self._thresholds = {other: size for other, size in self._thresholds.items() if other != pid}

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        fd = os.open(self._arena / "token.lock", os.O_RDONLY)
        try:
            token = FileId(device_of(fd), os.fstat(fd).st_ino)
            while not self._end.wait(INTERVAL_S):
                thresholds = self._thresholds
                look = Look(_hold(fd, token), {pid: rss_bytes(pid) for pid in thresholds}, _hold(fd, token))
                self.looks += 1
                self.seen.update(resident(look, thresholds))
                if (violation := judge(look, thresholds)) is not None:
                    self._report(*violation)
        finally:
            os.close(fd)


def _hold(fd: int, token: FileId) -> Hold:
    """The time first: if the token is taken in between, the next look differs from this one."""
    taken_ns = os.fstat(fd).st_mtime_ns
    return Hold(exclusive_owners(Path("/proc/locks").read_text()).get(token), taken_ns)
