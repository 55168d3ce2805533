"""Reading `/proc`: the text of other machines, and what this one says about us."""

from __future__ import annotations

import os
from pathlib import Path

from lsm.arena.flock import try_exclusive, try_shared
from lsm.arena.proc import FileId, Mount, device_of, exclusive_owners, find_mount, mount_of

from .helpers import opened

LOCKS = """\
1: POSIX  ADVISORY  WRITE 3568 fe:00:2531452 0 EOF
2: FLOCK  ADVISORY  WRITE 5188 fe:00:2146317 0 EOF
2: -> FLOCK  ADVISORY  WRITE 5190 fe:00:2146317 0 EOF
3: FLOCK  ADVISORY  READ 5189 fe:00:2146318 0 EOF
4: OFDLCK ADVISORY  WRITE -1 00:06:1028 0 EOF
5: FLOCK  ADVISORY  WRITE 77 103:1a:12 0 EOF
"""
MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
41 22 0:38 /lsm /home/a\\040b rw,nosuid shared:9 master:2 - nfs4 server:/export rw,vers=4.2
43 22 0:40 / /mnt/x rw - fuse.sshfs host: rw
"""


def test_only_exclusive_flocks_that_are_held_count() -> None:
    """S10: a share, a record lock and a blocked request are no ownership."""
    assert exclusive_owners(LOCKS) == {FileId((0xFE, 0), 2146317): 5188, FileId((0x103, 0x1A), 12): 77}


def test_mount_is_found_by_its_id() -> None:
    """S10: optional fields stand before the dash, so the kind is counted from the dash."""
    assert find_mount(MOUNTINFO, 22) == Mount((254, 0), "ext4")
    assert find_mount(MOUNTINFO, 41) == Mount((0, 38), "nfs4")
    assert find_mount(MOUNTINFO, 43) == Mount((0, 40), "fuse.sshfs")
    assert find_mount(MOUNTINFO, 99) is None


def test_a_lock_of_ours_is_found_under_our_pid(tmp_path: Path) -> None:
    """S10: the device is spelled as this kernel spells it."""
    with opened(tmp_path / "ours") as ours, opened(tmp_path / "shared") as shared:
        assert try_exclusive(ours) and try_shared(shared)
        owners = exclusive_owners(Path("/proc/locks").read_text())
        assert owners[FileId(device_of(ours), os.fstat(ours).st_ino)] == os.getpid()
        assert FileId(device_of(shared), os.fstat(shared).st_ino) not in owners


def test_without_proc_the_device_comes_from_stat(tmp_path: Path) -> None:
    """S10: a descriptor that /proc does not list is unknown, not an error."""
    assert mount_of(1_000_000) is None
    with opened(tmp_path / "file") as fd:
        mount = mount_of(fd)
        assert mount is not None and mount.device == device_of(fd)
