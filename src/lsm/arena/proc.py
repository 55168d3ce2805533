"""What `/proc` says about locks and mounts, parsed without touching a lock."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """Where a file lives. `device` is (major, minor) as `/proc/locks` prints it, which `st_dev` is not on every file system."""

    device: tuple[int, int]
    kind: str


class FileId(NamedTuple):
    """One file, as `/proc/locks` names it."""

    device: tuple[int, int]
    inode: int


# 1: FLOCK  ADVISORY  WRITE 5188 fe:00:2146317 0 EOF
# A line with "->" after the number is a request that is still blocked: not an owner.
_EXCLUSIVE = re.compile(r"^\d+: FLOCK\s+\S+\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s", re.MULTILINE)


def exclusive_owners(locks: str) -> dict[FileId, int]:
    """The process id behind each exclusive flock in the text of `/proc/locks`."""
    return {
        FileId((int(major, 16), int(minor, 16)), int(inode)): int(pid)
        for pid, major, minor, inode in _EXCLUSIVE.findall(locks)
    }


def find_mount(mountinfo: str, mount_id: int) -> Mount | None:
    """The mount with this id in the text of `/proc/self/mountinfo`; None when it is not listed."""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if fields and int(fields[0]) == mount_id:
            major, minor = fields[2].split(":")
            return Mount((int(major), int(minor)), right.split()[0])
    return None


def mount_of(fd: int) -> Mount | None:
    """The mount an open file lives on; None where `/proc` cannot tell."""
    try:
        about = Path(f"/proc/self/fdinfo/{fd}").read_text()
        mountinfo = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return None
    found = re.search(r"^mnt_id:\s*(\d+)", about, re.MULTILINE)
    return find_mount(mountinfo, int(found[1])) if found else None


def device_of(fd: int) -> tuple[int, int]:
    """(major, minor) of the file's device as `/proc/locks` prints it."""
    mount = mount_of(fd)
    if mount is not None:
        return mount.device
    device = os.fstat(fd).st_dev
    return os.major(device), os.minor(device)
