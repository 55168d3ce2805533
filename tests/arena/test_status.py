"""Who holds and who waits, seen without touching a lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm.arena.flock import try_exclusive
from lsm.arena.line import Line
from lsm.arena.status import Status, status
from lsm.errors import ArenaError

from .helpers import Child, join, opened, take

NewLine = Callable[..., Line]
Start = Callable[..., Child]


def backdate(path: Path, seconds: float) -> None:
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))


def test_nobody(new_line: NewLine, arena: Path) -> None:
    """S10: an idle line neither holds nor waits."""
    new_line()
    assert status(arena) == Status(None, ())
    assert status(arena).holder_pid is None and status(arena).waiting_pids == ()


def test_before_the_first_process(arena: Path) -> None:
    """S10: an empty arena is nobody's; a missing one is an error that says so; looking creates nothing."""
    with pytest.raises(ArenaError, match="does not exist"):
        status(arena)
    arena.mkdir(mode=0o700)
    assert status(arena) == Status(None, ())
    assert os.listdir(arena) == []


def test_holder_and_line_in_order(new_line: NewLine, start: Start, arena: Path) -> None:
    """S10: pids in the order of the line, with the aliases of their models."""
    ours = new_line("org/model-a")
    join(ours)
    take(ours)
    children = [start(label) for label in ("beta", "Größe 3", "")]
    for child in children:
        child.ask("join")
    seen = status(arena)
    assert seen.holder is not None
    assert (seen.holder_pid, seen.holder.label) == (os.getpid(), "org/model-a")
    assert seen.waiting_pids == tuple(child.pid for child in children)
    assert [waiter.label for waiter in seen.waiting] == ["beta", "Größe 3", ""]
    assert [waiter.number for waiter in seen.waiting] == [2, 3, 4]
    children[0].kill()
    assert status(arena).waiting_pids == tuple(child.pid for child in children[1:])


def test_two_models_of_one_process(new_line: NewLine, arena: Path) -> None:
    """S10: the first ticket of the holding process is the holder, the second one waits."""
    for label in ("first", "second"):
        join(new_line(label))
    assert [waiter.label for waiter in status(arena).waiting] == ["first", "second"]
    holder = new_line("third")
    join(holder)
    assert status(arena).holder is None


def test_times_count_from_joining_and_from_taking(new_line: NewLine, arena: Path) -> None:
    """S10: how long it is held and how long each has waited, in seconds."""
    holder, waiter = new_line("holder"), new_line("waiter")
    join(holder)
    take(holder)
    join(waiter)
    backdate(arena / "line" / "000000000001.holder", 100)
    backdate(arena / "line" / "000000000002.waiter", 20)
    backdate(arena / "token.lock", 30)
    seen = status(arena)
    assert seen.holder is not None and seen.holder.held_s is not None
    assert 30 <= seen.holder.held_s < 60
    assert 20 <= seen.waiting[0].waited_s < 50


def test_held_time_starts_anew_with_each_holder(new_line: NewLine, arena: Path) -> None:
    """S10: the last holder's time is not counted on."""
    line = new_line()
    join(line)
    backdate(arena / "line" / "000000000001", 1000)
    backdate(arena / "token.lock", 1000)
    take(line)
    seen = status(arena)
    assert seen.holder is not None and seen.holder.held_s is not None and seen.holder.held_s < 500


def test_clock_set_back_is_not_negative(new_line: NewLine, arena: Path) -> None:
    """S10: times come from the wall clock and are only for people."""
    line = new_line()
    join(line)
    take(line)
    backdate(arena / "token.lock", -1000)
    seen = status(arena)
    assert seen.holder is not None and seen.holder.held_s == 0.0


def test_stranger_without_a_ticket(new_line: NewLine, arena: Path) -> None:
    """S10: `flock token.lock command` from a shell is shown, with nothing made up about it."""
    new_line()
    with opened(arena / "token.lock") as stranger:
        assert try_exclusive(stranger)
        seen = status(arena)
    assert seen.holder is not None
    assert (seen.holder.pid, seen.holder.label, seen.holder.held_s) == (os.getpid(), "", None)


def test_looking_touches_no_lock(new_line: NewLine, arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a status tool must not spoil the birth of a ticket: the only flock is the share of the directory."""
    line = new_line()
    assert line.door_try()
    line.ticket_make()
    directory = arena.stat().st_ino
    touched: list[int] = []
    real = fcntl.flock

    def recorded(fd: int, how: int) -> None:
        touched.append(os.fstat(fd).st_ino)
        real(fd, how)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", recorded)
        assert status(arena) == Status(None, ())
    assert touched == [directory]
    line.ticket_lock()
    assert status(arena).waiting_pids == (os.getpid(),)


def test_status_leaves_no_descriptor_open(new_line: NewLine, arena: Path) -> None:
    """S10: a page that is asked every second must not leak."""
    join(new_line())
    before = sorted(os.listdir("/proc/self/fd"))
    status(arena)
    assert sorted(os.listdir("/proc/self/fd")) == before
