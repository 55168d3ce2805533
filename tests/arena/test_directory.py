"""The arena directory: found, made, and refused with a reason and a remedy."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lsm.arena import directory, proc
from lsm.arena.directory import default_directory, open_directory
from lsm.arena.line import Line
from lsm.arena.status import status
from lsm.errors import ArenaError

from .helpers import join, opened, take


def refused(path: Path, **how: Any) -> str:
    """The message with which the directory is refused, after a check that no descriptor is left open."""
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ArenaError) as error:
        open_directory(path, **how)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert str(path) in error.value.message
    return error.value.message


def failing(code: int) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7", "TMPDIR": "/var/tmp"}, "/run/user/7/lsm"),
        ({"TMPDIR": "/var/tmp"}, f"/var/tmp/lsm-{os.geteuid()}"),
        ({}, f"/tmp/lsm-{os.geteuid()}"),
        ({"XDG_RUNTIME_DIR": "", "TMPDIR": ""}, f"/tmp/lsm-{os.geteuid()}"),
        ({"XDG_RUNTIME_DIR": "relative"}, f"/tmp/lsm-{os.geteuid()}"),
    ],
)
def test_default(environ: dict[str, str], expected: str) -> None:
    """S10: processes of one user meet in one directory without being told."""
    assert default_directory(environ) == Path(expected)


def test_made_private_whatever_the_umask(arena: Path) -> None:
    """S10: mode 0700 from the first instant."""
    umask = os.umask(0)
    try:
        os.close(open_directory(arena))
    finally:
        os.umask(umask)
    assert stat.S_IMODE(arena.stat().st_mode) == 0o700


def test_opening_again_changes_nothing(arena: Path) -> None:
    """S7: opening the arena is idempotent and may be done from several places."""
    with Line(arena):
        made = sorted((entry.name, entry.stat().st_ino) for entry in os.scandir(arena))
    with Line(arena):
        pass
    assert sorted((entry.name, entry.stat().st_ino) for entry in os.scandir(arena)) == made
    assert [name for name, _ in made] == ["bell", "door.lock", "line", "token.lock", "want.lock"]


def test_missing_parent(tmp_path: Path) -> None:
    """S1: a mistyped path is an error at the start, not a lonely arena."""
    assert "does not exist; create it" in refused(tmp_path / "no" / "arena")


def test_missing_and_not_to_be_made(arena: Path) -> None:
    """S10: a status tool creates nothing."""
    assert "does not exist" in refused(arena, create=False)
    assert not arena.exists()


def test_parent_is_a_file(tmp_path: Path) -> None:
    """S1: a clear message instead of a traceback."""
    (tmp_path / "file").touch()
    assert "cannot be created (Not a directory)" in refused(tmp_path / "file" / "arena")


def test_parent_cannot_be_written(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: arena not writable is a startup failure with a clear message."""
    monkeypatch.setattr(os, "mkdir", failing(errno.EACCES))
    assert "cannot be created (Permission denied); choose a folder of your own" in refused(arena)


def test_file_instead_of_a_directory(arena: Path) -> None:
    """S1: a clear message that names the path."""
    arena.touch()
    assert "is not a directory" in refused(arena)


def test_symbolic_link(tmp_path: Path, arena: Path) -> None:
    """S10: a link in a shared temporary directory may be anybody's trap."""
    (tmp_path / "target").mkdir(mode=0o700)
    arena.symlink_to(tmp_path / "target")
    assert "is a symbolic link" in refused(arena)


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o500, 0o000])
def test_wrong_mode(arena: Path, mode: int) -> None:
    """S10: open to others, or closed to us: say which mode it has and how to mend it."""
    arena.mkdir()
    arena.chmod(mode)
    message = refused(arena)
    if mode:  # Without any rights only root gets as far as the mode.
        assert f"its mode is {mode:04o} and must be 0700; run: chmod 700 {arena}" in message
    arena.chmod(0o700)
    os.close(open_directory(arena))


def test_set_group_bit_is_no_fault(arena: Path) -> None:
    """S10: a directory inherits it from its parent on some systems."""
    arena.mkdir(mode=0o700)
    arena.chmod(0o2700)
    os.close(open_directory(arena))


def test_wrong_owner(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: somebody else made a directory of our name first."""
    arena.mkdir(mode=0o700)
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    assert f"belongs to user {us}, not to you ({us + 1})" in refused(arena)


def test_network_file_system(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: a FIFO does not join two machines."""
    monkeypatch.setattr(directory, "mount_of", lambda fd: proc.Mount((0, 50), "nfs4"))
    assert "lies on a network file system (nfs4)" in refused(arena)


def test_file_system_without_flock(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: without flock there is no exclusion at all, so refuse at the start."""
    monkeypatch.setattr(fcntl, "flock", failing(errno.EOPNOTSUPP))
    assert "its file system has no flock" in refused(arena)


def test_file_system_without_fifos(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: without FIFOs nobody can be woken."""
    monkeypatch.setattr(os, "mkfifo", failing(errno.EPERM))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ArenaError, match="cannot make its FIFO and its line"):
        Line(arena)
    assert len(os.listdir("/proc/self/fd")) == len(before)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "file": Path.touch,
    "directory": Path.mkdir,
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to("/dev/null"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
}
OURS = {"bell": "fifo", "line": "directory", "door.lock": "file", "token.lock": "file", "want.lock": "file"}


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("name", OURS)
def test_something_else_under_the_name_of_our_file(arena: Path, name: str, foreign: str) -> None:
    """S1: found at the start, by whoever opens the arena, with the path to remove; nothing is followed out of the arena."""
    arena.mkdir(mode=0o700)
    FOREIGN[foreign](arena / name)
    if OURS[name] == foreign:
        with Line(arena) as line:
            assert line.door_try()
        return
    for how in ({}, {"create": False}):
        assert f"its {name} is not a" in (message := refused(arena, **how))
        assert f"remove {arena / name} and start again" in message and "\n" not in message
    with pytest.raises(ArenaError, match=f"its {name} is not a"):
        Line(arena)
    with pytest.raises(ArenaError, match=f"its {name} is not a"):
        status(arena)


def test_furniture_of_another_user(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a file that an administrator has left in our arena is found at the start, not at the first turn."""
    with Line(arena):
        monkeypatch.setattr(os, "access", lambda name, *_, **__: name != "bell")
        assert "its bell may not be used by you (mode 0600)" in refused(arena)


def test_lock_file_that_cannot_be_opened(arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: a failed start names the file and leaves no descriptor."""
    kernel_open = os.open

    def full(path: str | Path, *arguments: Any, **keywords: Any) -> int:
        return failing(errno.ENFILE)() if path == "want.lock" else kernel_open(path, *arguments, **keywords)

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "open", full)
    with pytest.raises(ArenaError, match="cannot open want.lock"):
        Line(arena)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_strangers_in_the_line_are_no_hindrance(arena: Path) -> None:
    """S1: what has the name of a ticket and is none counts as dead, whatever it is."""
    with Line(arena, "a") as line:
        for number, make in enumerate(FOREIGN.values(), 1):
            make(arena / "line" / f"{number:012d}")
            make(arena / "line" / f"not a ticket {number}")
        join(line)
        take(line)
        assert line.number == 1


def test_cleaners_of_the_temporary_directory_keep_away(arena: Path) -> None:
    """S10: systemd-tmpfiles skips a directory that it cannot lock for itself."""
    with Line(arena), Line(arena), opened(arena, os.O_RDONLY) as cleaner, pytest.raises(BlockingIOError):
        fcntl.flock(cleaner, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_cleaner_at_work_is_no_reason_to_fail(arena: Path) -> None:
    """S10: it is gone in a moment, and takes only old files."""
    arena.mkdir(mode=0o700)
    with opened(arena, os.O_RDONLY) as cleaner:
        fcntl.flock(cleaner, fcntl.LOCK_EX)
        os.close(open_directory(arena))
