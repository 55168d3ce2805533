"""The blocking driver: it waits on descriptors, can be cancelled anywhere, and leaves nothing behind."""

from __future__ import annotations

import errno
import itertools
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.arena.flock import try_exclusive
from lsm.arena.line import Line
from lsm.arena.wait import retry_pauses_s, wait
from lsm.errors import ArenaGone

from .helpers import Child, eventually, join, names, opened, take

NewLine = Callable[..., Line]


@pytest.fixture
def cancelled() -> Iterator[int]:
    """A descriptor that is readable already."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"c")
    yield read_end
    os.close(read_end)
    os.close(write_end)


def test_alone(new_line: NewLine) -> None:
    """S7: with nobody in the way, waiting is taking."""
    line = new_line()
    assert wait(line)
    assert line.has_token and not line.wanted()


def test_cancel_behind_a_holder(new_line: NewLine, arena: Path, cancelled: int) -> None:
    """S1: a wait that is interrupted by shutdown ends, and nobody is wanted any more."""
    holder, line = new_line(), new_line()
    assert wait(holder)
    assert not wait(line, cancelled)
    assert line.number == 0 and not holder.wanted() and names(arena) == ["000000000001"]


def test_cancel_at_a_busy_door(new_line: NewLine, arena: Path, cancelled: int) -> None:
    """S1: a process frozen in the door cannot keep others from shutting down."""
    frozen, line = new_line(), new_line()
    assert frozen.door_try()
    assert not wait(line, cancelled)
    assert names(arena) == []
    frozen.leave()
    assert wait(line)


def test_cancel_behind_a_stranger(new_line: NewLine, arena: Path, cancelled: int) -> None:
    """S10: a token taken from outside the line is waited for, and that wait can be cancelled too."""
    line = new_line()
    with opened(arena / "token.lock") as stranger:
        assert try_exclusive(stranger)
        assert not wait(line, cancelled)
    assert names(arena) == [] and not line.wanted()
    assert wait(line)


def test_a_cancel_that_comes_too_late_does_not_take_the_token_away(new_line: NewLine, cancelled: int) -> None:
    """S1: where nothing has to be waited for, the answer is the token."""
    line = new_line()
    assert wait(line, cancelled)
    assert line.has_token


def test_cancel_of_a_real_sleeper(new_line: NewLine, start: Callable[..., Child], arena: Path) -> None:
    """S1: a process asleep in the line goes when it is killed, and the one that comes next sweeps its name."""
    holder, sleeper = new_line(), start()
    join(holder)
    take(holder)
    sleeper.send("wait")
    eventually(holder.wanted)
    sleeper.kill()
    assert not holder.wanted()
    holder.leave()
    assert wait(holder)
    assert len(names(arena)) == 1


def test_full_disk(new_line: NewLine, arena: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: the error goes to the caller, and door and share are free again."""
    line, other = new_line(), new_line()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkfifo", full)
        with pytest.raises(OSError, match="No space left"):
            wait(line)
    assert names(arena) == [] and not other.wanted()
    assert wait(other)


def test_arena_deleted(new_line: NewLine, arena: Path) -> None:
    """S10: no wait in an arena that nobody else can see."""
    line = new_line()
    (arena / "token.lock").unlink()
    with pytest.raises(ArenaGone):
        wait(line)


def test_waiting_twice_keeps_what_is_held(new_line: NewLine) -> None:
    """S7: a mistake of the caller does not cost it the token."""
    line = new_line()
    assert wait(line)
    with pytest.raises(RuntimeError, match="already has ticket 1"):
        wait(line)
    assert line.has_token


def test_pauses_grow_to_a_limit() -> None:
    """S1: quick where it is over in an instant, 20 ms where somebody is frozen: never a busy loop."""
    pauses = list(itertools.islice(retry_pauses_s(), 12))
    assert pauses[0] == 0.0002 and pauses[-1] == 0.02
    assert all(one <= two <= 2 * one for one, two in itertools.pairwise(pauses))


def test_a_death_in_the_middle_is_no_turn(new_line: NewLine, start: Callable[..., Child]) -> None:
    """S1: woken by the death of its neighbour, a waiter looks again, though the token is free and could be had."""
    first, middle, last = new_line(), start(), start()
    join(first)
    assert middle.ask("join") == "2"
    last.send("wait")
    eventually(last.is_polling)
    before = last.sleeps()
    middle.kill()
    eventually(lambda: last.sleeps() > before and last.is_polling())
    assert not last.has_answered()
    first.leave()
    assert last.hear() == "True"


def test_no_wake_up_while_waiting(new_line: NewLine, start: Callable[..., Child]) -> None:
    """S1: a sleeper in the line sleeps: nothing wakes it until its turn, not even the rings of others."""
    holder, sleeper, passer_by = new_line(), start(), new_line()
    assert wait(holder)
    sleeper.send("wait")
    eventually(lambda: holder.wanted() and sleeper.is_polling())
    before = sleeper.sleeps()
    for _ in range(20):
        join(passer_by)
        passer_by.leave()
    select.poll().poll(3 * 20)  # Three of the longest pauses between tries.
    assert sleeper.sleeps() == before
    holder.leave()
    assert sleeper.hear() == "True"
