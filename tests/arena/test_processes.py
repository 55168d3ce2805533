"""Real processes in one line, and real `kill -9`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lsm.arena.line import Line

from .helpers import Child, hung_up, join, names, readable, take, take_after_death

NewLine = Callable[..., Line]
Start = Callable[..., Child]


def test_first_come_first_served(new_line: NewLine, start: Start, arena: Path) -> None:
    """S1: three processes and we are served in the order of their tickets."""
    ours = new_line()
    join(ours)
    take(ours)
    children = [start() for _ in range(3)]
    for child in children:
        child.send("wait")
        assert readable(ours.bell_fd)
        ours.bell_hear()
    assert ours.wanted() and len(names(arena)) == 4
    ours.leave()
    for child, later in zip(children, [children[1:], children[2:], []], strict=True):
        assert child.hear() == "True"
        assert not any(other.has_answered() for other in later)
        assert child.ask("leave") == "None"
    assert names(arena) == []


def test_waiter_takes_its_turn_after_a_later_one_joined(new_line: NewLine, start: Start) -> None:
    """S1: to come back is to join at the tail."""
    ours, other = new_line(), start()
    join(ours)
    take(ours)
    assert other.ask("join") == "2"
    ours.leave()
    join(ours)
    watched = ours.ahead()
    assert watched >= 0, "the other is first, though we have just had the token"
    assert other.ask("token_try") == "True"
    assert other.ask("leave") == "None"
    assert hung_up(watched)
    os.close(watched)
    take(ours)


def test_holder_killed(new_line: NewLine, start: Start, arena: Path) -> None:
    """S1: the next one wakes and takes; the dead one's name is swept by the next to join."""
    holder, ours, newcomer = start(), new_line(), new_line()
    assert holder.ask("wait") == "True"
    join(ours)
    watched = ours.ahead()
    assert not hung_up(watched, 0)
    holder.kill()
    assert hung_up(watched)
    os.close(watched)
    take_after_death(ours)
    assert names(arena) == ["000000000001", "000000000002"]
    join(newcomer)
    assert names(arena) == ["000000000002", "000000000003"]


def test_dead_waiter_is_not_wanted(new_line: NewLine, start: Start) -> None:
    """S1: a dead waiter causes no pointless yield."""
    ours, waiter = new_line(), start()
    join(ours)
    take(ours)
    assert waiter.ask("join") == "2"
    assert ours.wanted()
    waiter.kill()
    assert not ours.wanted()


def test_waiter_killed_in_the_middle(new_line: NewLine, start: Start) -> None:
    """S1: who watched the dead one looks again and watches the one before it: it does not overtake."""
    holder, middle, ours = start(), start(), new_line()
    assert holder.ask("wait") == "True"
    assert middle.ask("join") == "2"
    join(ours)
    watched = ours.ahead()
    middle.kill()
    assert hung_up(watched)
    os.close(watched)
    watched = ours.ahead()
    assert watched >= 0 and not hung_up(watched, 0), "the holder is still alive"
    assert holder.ask("leave") == "None"
    assert hung_up(watched)
    os.close(watched)
    take(ours)


@pytest.mark.parametrize("steps", [["door_try"], ["door_try", "ticket_make"], ["door_try", "ticket_make", "ticket_lock"]])
def test_killed_in_the_door(new_line: NewLine, start: Start, arena: Path, steps: list[str]) -> None:
    """S1: the door opens by itself, and a half-made ticket is swept."""
    ours, other = new_line(), start()
    for step in steps:
        other.ask(step)
    assert not ours.door_try()
    other.kill()
    join(ours)
    assert names(arena) == ["000000000001"]
    take(ours)


def test_frozen_in_the_door(new_line: NewLine, start: Start) -> None:
    """S1: a stopped process keeps the door; the others are refused at once, never blocked."""
    ours, other = new_line(), start()
    assert other.ask("door_try") == "True"
    other.stop()
    assert not ours.door_try()
    other.kill()
    join(ours)
    take(ours)


def test_frozen_waiter_keeps_its_place(new_line: NewLine, start: Start) -> None:
    """S1: order holds over a SIGSTOP; the one behind goes on when it is killed."""
    frozen, ours = start(), new_line()
    assert frozen.ask("join") == "1"
    join(ours)
    watched = ours.ahead()
    frozen.stop()
    assert watched >= 0 and not hung_up(watched, 0)
    frozen.resume()
    assert frozen.ask("token_try") == "True"
    assert frozen.ask("token_drop") == "None"
    frozen.kill()
    assert hung_up(watched)
    os.close(watched)
    take_after_death(ours)


def test_bell_reaches_the_holder_of_another_process(new_line: NewLine, start: Start) -> None:
    """S1: the holder learns of a newcomer without a timer, and of its going only by looking."""
    holder, ours = start(), new_line()
    join(ours)
    take(ours)
    assert not readable(ours.bell_fd, 0) and not ours.wanted()
    holder.send("wait")
    assert readable(ours.bell_fd)
    assert ours.wanted()
    holder.kill()
    ours.bell_hear()
    assert not ours.wanted() and not readable(ours.bell_fd, 0)


def test_arena_deleted_under_two_processes(new_line: NewLine, start: Start, arena: Path) -> None:
    """S10: both are told; neither becomes resident in an arena that others cannot see."""
    ours, other = new_line(), start()
    join(ours)
    for entry in ("token.lock", "want.lock", "door.lock", "bell"):
        (arena / entry).unlink()
    assert other.ask("wait").startswith("ArenaGone: arena ")
    assert other.ask("leave") == "None"
