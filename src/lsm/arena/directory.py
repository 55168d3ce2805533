"""The arena is a private directory: whoever can open its files can stop every model, so nobody else may.

Files in it: `door.lock`, `token.lock`, `want.lock`, `bell` (FIFO), `line/` (the tickets) and, under a budget, `ledger/` and `bells/`
(a page and a bell for each model). They stay; only what is in the folders comes and goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from lsm.arena.proc import mount_of
from lsm.errors import ArenaError

# A FIFO joins processes of one machine only, and flock there may be something else in disguise.
_NETWORK_KINDS = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "afs", "fuse.sshfs"})
_ELSEWHERE = "choose a folder of your own on a local disk with --arena or LSM_ARENA"

_FOLDER = ("a directory", stat.S_ISDIR, os.R_OK | os.W_OK | os.X_OK)
_LOCK_FILE = ("a regular file", stat.S_ISREG, os.R_OK | os.W_OK)
_FURNITURE: Mapping[str, tuple[str, Callable[[int], bool], int]] = {
    "bell": ("a FIFO", stat.S_ISFIFO, os.R_OK | os.W_OK),
    "bells": _FOLDER,
    "ledger": _FOLDER,
    "line": _FOLDER,
    "door.lock": _LOCK_FILE,
    "token.lock": _LOCK_FILE,
    "want.lock": _LOCK_FILE,
}


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where the arena is when nobody says: `$XDG_RUNTIME_DIR/lsm`, else a directory of this user in the temporary directory."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        return Path(runtime, "lsm")
    return Path(environ.get("TMPDIR") or "/tmp", f"lsm-{os.geteuid()}")


def open_directory(path: Path | str, *, create: bool = True) -> int:
    """A descriptor of the arena directory, made with mode 0700 if need be, checked; the caller closes it.

    All later work goes through this descriptor, so nobody can exchange the directory between the check and the use.
    Raises ArenaError: it cannot be made or read, is a symbolic link or no directory, belongs to somebody else, is open to
    others, lives on a network file system, or something else than ours stands under the name of one of its files.
    """
    path = Path(path)
    if create:
        _make(path)
    fd = _open(path)
    try:
        _check_private(path, os.fstat(fd))
        _check_local(path, fd)
        _check_furniture(path, fd)
        _keep_from_cleaners(path, fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_furniture(path: Path | str, arena_fd: int) -> int:
    """Make `bell` and `line/` if they are missing; a descriptor of `line/`, which the caller closes."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo("bell", 0o600, dir_fd=arena_fd)
        with contextlib.suppress(FileExistsError):
            os.mkdir("line", 0o700, dir_fd=arena_fd)
        return os.open("line", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=arena_fd)
    except OSError as error:
        raise ArenaError(f"arena {path}: cannot make its FIFO and its line ({error.strerror}); {_ELSEWHERE}") from error


def open_lock_file(path: Path | str, arena_fd: int, name: str) -> int:
    """A new open file description of one lock file: two of them exclude each other, in one process too. The caller closes it."""
    try:
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=arena_fd)
    except OSError as error:
        raise ArenaError(f"arena {path}: cannot open {name} ({error.strerror}); {_ELSEWHERE}") from error


def _make(path: Path) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError as error:
        raise ArenaError(f"arena {path}: the folder {path.parent} does not exist; create it, or {_ELSEWHERE}") from error
    except OSError as error:
        raise ArenaError(f"arena {path}: cannot be created ({error.strerror}); {_ELSEWHERE}") from error


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise ArenaError(f"arena {path}: does not exist; the first model that starts creates it") from error
    except OSError as error:
        raise ArenaError(f"arena {path}: {_why_not_opened(path, error)}; {_ELSEWHERE}") from error


def _why_not_opened(path: Path, error: OSError) -> str:
    """The kernel answers ENOTDIR for a link and for a file alike; a person needs to know which."""
    if path.is_symlink():
        return "is a symbolic link, which somebody could turn elsewhere"
    if isinstance(error, NotADirectoryError):
        return "is not a directory"
    return f"cannot be opened ({error.strerror})"


def _check_private(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise ArenaError(f"arena {path}: belongs to user {about.st_uid}, not to you ({os.geteuid()}); {_ELSEWHERE}")
    mode = stat.S_IMODE(about.st_mode) & 0o777
    if mode != 0o700:
        raise ArenaError(f"arena {path}: its mode is {mode:04o} and must be 0700; run: chmod 700 {path}")


def _check_local(path: Path, fd: int) -> None:
    mount = mount_of(fd)
    if mount is not None and mount.kind in _NETWORK_KINDS:
        raise ArenaError(f"arena {path}: lies on a network file system ({mount.kind}); {_ELSEWHERE}")


def _check_furniture(path: Path, fd: int) -> None:
    """What is there already is what we would have made: a file in the place of the bell would be found only when it should ring."""
    for name, (kind, is_kind, rights) in _FURNITURE.items():
        try:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue
        if not is_kind(mode):
            remedy = f"stop what uses {path}, remove {path / name} and start again, or {_ELSEWHERE}"
            raise ArenaError(f"arena {path}: its {name} is not {kind}, so lsm has not made it; {remedy}")
        if not os.access(name, rights, dir_fd=fd, effective_ids=True):
            raise ArenaError(f"arena {path}: its {name} may not be used by you (mode {stat.S_IMODE(mode):04o}); {_ELSEWHERE}")


def _keep_from_cleaners(path: Path, fd: int) -> None:
    """Share a lock on the directory while we live: systemd-tmpfiles leaves a locked directory and all below it alone.

    It also shows whether this file system knows flock at all. A cleaner that is here just now is no reason to fail.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as error:
        raise ArenaError(f"arena {path}: its file system has no flock ({error.strerror}); {_ELSEWHERE}") from error
