"""An independent witness: it reads the kernel's books on memory and locks, never what the servers say of themselves."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

from lsm.arena.proc import FileId, device_of, exclusive_owners

PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


class Observer:
    """Watches processes from a thread, as fast as it can.  `thresholds`: the bytes above which a process counts as resident."""

    def __init__(self, arena: Path, thresholds: dict[int, int]) -> None:
        self._arena = arena
        self._thresholds = thresholds
        self._end = threading.Event()
        self.samples = 0
        self.resident_seen = dict.fromkeys(thresholds, 0)
        self.double_resident: list[dict[int, int]] = []
        self.resident_without_token: list[int] = []
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        fd = os.open(self._arena, os.O_RDONLY | os.O_DIRECTORY)
        token = FileId(device_of(fd), os.stat("token.lock", dir_fd=fd).st_ino)
        os.close(fd)
        while not self._end.wait(0.001):
            before = self._holder(token)
            sizes = {pid: rss_bytes(pid) for pid in self._thresholds}
            after = self._holder(token)
            self.samples += 1
            resident = [pid for pid, size in sizes.items() if size > self._thresholds[pid]]
            for pid in resident:
                self.resident_seen[pid] += 1
            # The sizes are not read in one instant: only what holds on both sides of them is evidence.
            if len(resident) > 1 and before == after:
                self.double_resident.append(sizes)
            if before == after and any(pid != before for pid in resident):
                self.resident_without_token.append(resident[0])

    def _holder(self, token: FileId) -> int | None:
        return exclusive_owners(Path("/proc/locks").read_text()).get(token)
