"""Each step of a line, in one process: several lines on one arena exclude each other."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm.arena.flock import try_exclusive, try_shared, unlock
from lsm.arena.line import Line
from lsm.errors import ArenaError, ArenaGone

from .helpers import hung_up, join, names, opened, readable, take

NewLine = Callable[..., Line]


def test_alone(new_line: NewLine, arena: Path) -> None:
    """S7: a process alone takes the token at once, and leaves nothing behind."""
    line = new_line("qwen3/4b")
    assert (line.number, line.has_token, line.bell_fd) == (0, False, -1)
    join(line)
    assert (line.number, line.has_token) == (1, False)
    assert names(arena) == ["000000000001.qwen3%2F4b"]
    take(line)
    assert line.has_token and line.bell_fd >= 0 and not line.wanted()
    line.leave()
    assert (line.number, line.has_token, line.bell_fd) == (0, False, -1)
    assert names(arena) == []


def test_two_lines_in_one_process_exclude_each_other(new_line: NewLine) -> None:
    """S10: one process may serve two models; never are both resident."""
    holder, second = new_line(), new_line()
    join(holder)
    take(holder)
    join(second)
    watched = second.ahead()
    assert not hung_up(watched, 0)
    assert not second.token_try()
    holder.leave()
    assert hung_up(watched)
    os.close(watched)
    take(second)


def test_wanting_is_a_lock(new_line: NewLine) -> None:
    """S1: the holder sees a waiter for exactly as long as it waits."""
    holder, waiter = new_line(), new_line()
    join(holder)
    assert holder.wanted(), "a line that waits itself is somebody who waits"
    take(holder)
    assert not holder.wanted()
    join(waiter)
    assert all(holder.wanted() for _ in range(3)), "level, not edge: asking does not use it up"
    waiter.leave()
    assert not holder.wanted()


def test_wanted_is_true_before_the_bell_rings(new_line: NewLine) -> None:
    """S1: whoever hears the bell finds the waiter, and a lost ring loses nothing."""
    holder, waiter = new_line(), new_line()
    join(holder)
    take(holder)
    assert waiter.door_try()
    waiter.ticket_make()
    waiter.ticket_lock()
    waiter.door_open()
    assert holder.wanted() and not readable(holder.bell_fd, 0)
    waiter.bell_ring()
    assert readable(holder.bell_fd, 0)
    holder.bell_hear()
    assert not readable(holder.bell_fd, 0) and holder.wanted()


def test_bell_rings_into_nothing(new_line: NewLine, arena: Path) -> None:
    """S1: nobody listens, the bell is full, the bell is gone: ringing is only a hint and never fails."""
    holder, waiter = new_line(), new_line()
    waiter.bell_ring()
    join(holder)
    take(holder)
    with opened(arena / "bell", os.O_RDWR | os.O_NONBLOCK) as full, pytest.raises(BlockingIOError):
        while os.write(full, bytes(4096)):
            pass
    waiter.bell_ring()
    holder.bell_hear()
    assert not readable(holder.bell_fd, 0)
    (arena / "bell").unlink()
    waiter.bell_ring()


def test_door_is_both_or_neither(new_line: NewLine, arena: Path) -> None:
    """S1: refused by a probe of want.lock, the door is free again; refused by the door, nothing is wanted."""
    line, other = new_line(), new_line()
    with opened(arena / "want.lock") as probe:
        assert try_exclusive(probe)
        assert not line.door_try()
        unlock(probe)
    assert other.door_try()
    assert not line.door_try()
    other.door_open()
    other.want_drop()
    assert not line.wanted()
    assert line.door_try()


def test_the_dead_are_swept_and_numbers_grow_among_the_living(new_line: NewLine, arena: Path) -> None:
    """S1: a name without a lock is a dead process; its number may come again."""
    first, second = new_line(), new_line()
    join(first)
    for name in ("000000000000.dead", "000000000007.dead"):
        os.mkfifo(arena / "line" / name)
    join(second)
    assert second.number == 2
    assert names(arena) == ["000000000001", "000000000002"]


def test_ticket_lives_before_the_door_opens(new_line: NewLine) -> None:
    """S1: between its making and its locking a ticket looks dead, and only the door keeps a sweeper out."""
    first, second = new_line(), new_line()
    assert first.door_try()
    first.ticket_make()
    assert not second.door_try()
    first.ticket_lock()
    first.door_open()
    join(second)
    assert (first.number, second.number) == (1, 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EDQUOT])
def test_full_disk_refuses_only_the_newcomer(new_line: NewLine, arena: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """S1: no ticket, nothing that want_drop and door_open do not undo, and the next attempt succeeds."""
    holder, newcomer = new_line(), new_line()
    join(holder)
    take(holder)

    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkfifo", full)
        assert newcomer.door_try()
        with pytest.raises(OSError, match=os.strerror(code)):
            newcomer.ticket_make()
        newcomer.want_drop()
        newcomer.door_open()
    assert newcomer.number == 0 and not holder.wanted() and names(arena) == ["000000000001"]
    join(newcomer)
    holder.leave()
    take(newcomer)


def test_foreign_probe_of_a_newborn_ticket(new_line: NewLine, arena: Path) -> None:
    """S1: a tool that locks tickets spoils a birth, not the line: the ticket goes, the door opens."""
    line, other = new_line(), new_line()
    assert line.door_try()
    line.ticket_make()
    with opened(arena / "line" / "000000000001", os.O_RDONLY | os.O_NONBLOCK) as probe:
        assert try_shared(probe)
        with pytest.raises(ArenaError, match="another program locks tickets"):
            line.ticket_lock()
    assert names(arena) == []
    line.ticket_unlink()
    line.ticket_close()
    line.want_drop()
    assert not other.wanted()
    join(other)
    take(other)


def test_token_taken_by_a_stranger(new_line: NewLine, arena: Path) -> None:
    """S10: the first in line meets a lock from outside the line, keeps its place and tries again."""
    line = new_line()
    join(line)
    with opened(arena / "token.lock") as stranger:
        assert try_exclusive(stranger)
        assert line.ahead() == -1 and not line.token_try()
        assert not line.has_token and line.bell_fd == -1 and line.wanted()
    take(line)


@pytest.mark.parametrize("steps", range(7))
def test_leave_from_any_state(new_line: NewLine, arena: Path, steps: int) -> None:
    """S1: a cancel at any point leaves no lock, no name and no share."""
    line, other = new_line(), new_line()
    way = (line.door_try, line.ticket_make, line.ticket_lock, line.door_open, line.bell_ring, line.token_try)
    for step in way[:steps]:
        step()
    line.leave()
    line.leave()
    assert names(arena) == [] and not other.wanted()
    join(other)
    take(other)


def test_leaving_gives_the_token_before_the_place(new_line: NewLine, arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S10: whoever is woken finds the token free, and a name that is unlinked after its lock is gone may be a newcomer's."""
    holder, waiter = new_line(), new_line()
    join(holder)
    take(holder)
    join(waiter)
    watched = waiter.ahead()
    unlinked: list[str] = []
    real = os.unlink

    def watched_unlink(name: str, **how: int) -> None:
        with opened(arena / "token.lock") as stranger:
            assert try_exclusive(stranger), "the token is free when the name goes"
        assert not hung_up(watched, 0), "the place is still ours when the name goes"
        unlinked.append(name)
        real(name, **how)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", watched_unlink)
        holder.leave()
    assert unlinked == ["000000000001"]
    assert hung_up(watched)
    os.close(watched)
    take(waiter)


def test_leaving_step_by_step(new_line: NewLine) -> None:
    """S1: the next in line is woken by the last step only, whoever performs the steps."""
    holder, waiter = new_line(), new_line()
    join(holder)
    take(holder)
    join(waiter)
    watched = waiter.ahead()
    holder.token_drop()
    assert holder.bell_fd == -1 and not holder.has_token
    holder.ticket_unlink()
    assert holder.number == 0 and not hung_up(watched, 0)
    holder.ticket_close()
    assert hung_up(watched)
    os.close(watched)
    take(waiter)


def test_a_failing_step_does_not_keep_the_rest(new_line: NewLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: an I/O error while leaving must not strand the others."""
    line, other = new_line(), new_line()
    join(line)
    take(line)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", broken)
        with pytest.raises(OSError, match="Input/output error"):
            line.leave()
    join(other)
    take(other)


@pytest.mark.parametrize("what", ["whole", "token", "line", "bell"])
def test_arena_deleted(new_line: NewLine, arena: Path, what: str) -> None:
    """S10: whoever makes the arena again does not see our locks, so nobody joins or takes in a deleted one."""
    waiter, newcomer = new_line(), new_line()
    join(waiter)
    if what == "whole":
        shutil.rmtree(arena)
    elif what == "line":
        shutil.rmtree(arena / "line")
    else:
        (arena / {"token": "token.lock", "bell": "bell"}[what]).unlink()
    if what in ("whole", "token"):
        with pytest.raises(ArenaGone, match=f"arena {arena}: was deleted"):
            newcomer.door_try()
    if what == "line":
        assert newcomer.door_try()
        with pytest.raises(ArenaGone):
            newcomer.ticket_make()
        newcomer.leave()
    if what != "line":
        with pytest.raises(ArenaGone):
            waiter.token_try()
        assert not waiter.has_token and waiter.bell_fd == -1
    waiter.leave()


def test_steps_out_of_order_are_refused(new_line: NewLine) -> None:
    """S1: a mistake in the caller's program is said, because a silent one would cost the order."""
    line = new_line()
    for step in (line.ticket_make, line.ticket_lock, line.ahead, line.token_try):
        with pytest.raises(RuntimeError, match="out of order"):
            step()
    assert line.door_try()
    with pytest.raises(RuntimeError, match="out of order"):
        line.door_try()
    line.ticket_make()
    for step in (line.ticket_make, line.door_try):
        with pytest.raises(RuntimeError, match="out of order"):
            step()
    line.ticket_lock()
    line.door_open()
    assert line.token_try()
    with pytest.raises(RuntimeError, match="out of order"):
        line.token_try()


def test_close_gives_everything_back(arena: Path) -> None:
    """S7: closing is leaving; a second close does nothing."""
    before = sorted(os.listdir("/proc/self/fd"))
    line = Line(arena)
    join(line)
    take(line)
    line.close()
    line.close()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert names(arena) == []
