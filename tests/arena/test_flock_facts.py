"""What this kernel must do for the line to be right. One test for each fact that the protocol stands on."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from lsm.arena.flock import try_exclusive, try_shared, unlock

from .helpers import Child, eventually, hung_up, opened, readable

LOCK_A_TICKET = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
os.close(fd)
print("closed", flush=True)
sys.stdin.readline()
"""
LOCK_AND_FORK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(fd, fcntl.LOCK_EX)
read_end, write_end = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(write_end)
    os.read(read_end, 1)  # ends with the parent
    os.read(int(sys.argv[2]), 1)
    os._exit(0)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def ticket(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "ticket", 0o600)
    return tmp_path / "ticket"


def test_two_opens_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    """S1: flock belongs to the open file, not to the process."""
    with opened(tmp_path / "lock") as one, opened(tmp_path / "lock") as two:
        assert try_exclusive(one)
        assert not try_exclusive(two)
        assert not try_shared(two)
        unlock(one)
        assert try_shared(one) and try_shared(two)


def test_refused_upgrade_loses_the_share(tmp_path: Path) -> None:
    """S1: never probe through the descriptor that shares."""
    with opened(tmp_path / "lock") as sharing, opened(tmp_path / "lock") as other, opened(tmp_path / "lock") as probe:
        assert try_shared(sharing) and try_shared(other)
        assert not try_exclusive(sharing)
        unlock(other)
        assert try_exclusive(probe), "the share has survived: this kernel is kinder than we need"


def test_record_locks_vanish_with_any_close(tmp_path: Path) -> None:
    """S1: why POSIX record locks are never used."""
    held, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    ask = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: sys.exit(3)"

    def asked() -> int:
        return subprocess.run([sys.executable, "-c", ask, tmp_path / "lock"]).returncode

    fcntl.lockf(held, fcntl.LOCK_EX)
    assert asked() == 3
    os.close(other)
    assert asked() == 0
    os.close(held)


def test_lock_survives_its_name(tmp_path: Path) -> None:
    """S10: who makes a deleted file again does not see our lock on the old one; only the link count tells."""
    with opened(tmp_path / "lock") as old:
        assert try_exclusive(old)
        os.unlink(tmp_path / "lock")
        assert os.fstat(old).st_nlink == 0
        with opened(tmp_path / "lock") as new:
            assert try_exclusive(new)


def test_forked_child_keeps_the_lock_alive(tmp_path: Path) -> None:
    """S1: why a fork must close the copies."""
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    with opened(tmp_path / "lock") as ours:
        process = subprocess.Popen(
            [sys.executable, "-c", LOCK_AND_FORK, tmp_path / "lock", str(read_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[read_end],
        )
        assert process.stdin is not None and process.stdout is not None
        os.close(read_end)
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.wait()
        assert not try_exclusive(ours), "the forked child is alive and has the open file"
        os.close(write_end)
        assert process.stdout.read() == b""  # The last copy of its output is closed: the forked child is gone.
        eventually(lambda: try_exclusive(ours))
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("how", ["close", "kill"])
def test_hang_up_comes_after_the_unlock(ticket: Path, how: str) -> None:
    """S1: whoever is woken by a ticket finds its lock gone: no lost wake-up, no second look needed."""
    for _ in range(5):
        owner = Child("-c", LOCK_A_TICKET, ticket)
        with opened(ticket, os.O_RDONLY | os.O_NONBLOCK) as watching:
            assert not try_shared(watching)
            assert not hung_up(watching, 0)
            if how == "kill":
                os.kill(owner.pid, 9)
            else:
                owner.send("close")
            assert hung_up(watching)
            assert try_shared(watching)
        owner.kill()


def test_stopped_owner_does_not_hang_up(ticket: Path) -> None:
    """S1: a frozen process keeps its place; it may have the memory."""
    owner = Child("-c", LOCK_A_TICKET, ticket)
    with opened(ticket, os.O_RDONLY | os.O_NONBLOCK) as watching:
        owner.stop()
        assert not hung_up(watching, 0)
        assert not try_shared(watching)
        owner.kill()
        assert hung_up(watching)


def test_opened_too_late_never_hangs_up_but_is_not_locked(ticket: Path) -> None:
    """S1: hence the lock is tried after the opening and before the sleep."""
    with opened(ticket, os.O_RDWR | os.O_NONBLOCK) as owner:
        assert try_exclusive(owner)
    with opened(ticket, os.O_RDONLY | os.O_NONBLOCK) as late:
        assert not hung_up(late, 0)
        assert try_shared(late)


def test_epoll_reports_the_hang_up(ticket: Path) -> None:
    """S1: an event loop that waits for readability is woken too."""
    owner = os.open(ticket, os.O_RDWR | os.O_NONBLOCK)
    with opened(ticket, os.O_RDONLY | os.O_NONBLOCK) as watching, select.epoll() as loop:
        loop.register(watching, select.EPOLLIN | select.EPOLLONESHOT)
        assert loop.poll(0) == []
        os.close(owner)
        assert loop.poll(10) == [(watching, select.EPOLLHUP)]


def test_bell_without_listener_is_refused_at_once(ticket: Path) -> None:
    """S1: ringing never blocks and never fails for want of a listener."""
    with pytest.raises(OSError) as refused:
        os.open(ticket, os.O_WRONLY | os.O_NONBLOCK)
    assert refused.value.errno == errno.ENXIO


def test_bell_forgets_its_rings_with_its_last_listener(ticket: Path) -> None:
    """S1: a new holder does not hear the rings of the last one's time."""
    with opened(ticket, os.O_RDWR | os.O_NONBLOCK) as listener:
        os.write(listener, b"!")
        assert readable(listener, 0)
    with opened(ticket, os.O_RDWR | os.O_NONBLOCK) as listener:
        assert not readable(listener, 0)


def test_full_bell_refuses_at_once(ticket: Path) -> None:
    """S1: a holder that does not listen for long is still rung without blocking."""
    with opened(ticket, os.O_RDWR | os.O_NONBLOCK) as listener, pytest.raises(BlockingIOError):
        while os.write(listener, bytes(4096)):
            pass
