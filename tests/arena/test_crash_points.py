"""`kill -9` before and after every kernel call of a line, one after the other: nobody is stranded, nothing is left over."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.arena.line import Line
from lsm.arena.wait import wait

from .helpers import Child, eventually, hung_up, join, names, take

NewLine = Callable[..., Line]


@pytest.fixture
def crasher(arena: Path) -> Iterator[Child]:
    child = Child(Path(__file__).with_name("crasher.py"), arena)
    yield child
    child.kill()


def points(crasher: Child, mode: str, *, least: int) -> Iterator[int]:
    """Each point at which the process can be killed; ends when one life survives, which must be after `least` points."""
    for point in itertools.count(1):
        answer = crasher.ask(f"{mode} {point}")
        if answer != "killed":
            assert answer == "survived 0" and point > least
            return
        yield point


def test_alone(crasher: Child, arena: Path) -> None:
    """S1: whoever comes after the dead gets the token, and sweeps what they left."""
    for _ in points(crasher, "whole", least=40):
        with Line(arena) as line:
            assert wait(line)
            assert line.number == 1 and len(names(arena)) == 1 and not line.wanted()
    assert names(arena) == []


def test_behind_somebody(crasher: Child, new_line: NewLine, arena: Path) -> None:
    """S1: the one ahead is not disturbed, and a dead waiter does not make it yield."""
    ours = new_line()
    join(ours)
    take(ours)
    for _ in points(crasher, "cancel", least=40):
        assert ours.has_token and not ours.wanted()
        with Line(arena) as line:
            join(line)
            assert line.number == 2 and len(names(arena)) == 2
    assert names(arena) == ["000000000001"]


def test_while_leaving_with_one_behind(crasher: Child, new_line: NewLine, arena: Path) -> None:
    """S1: at whatever point of its leaving the holder dies, the waiter gets the token."""
    for point in itertools.count(1):
        assert crasher.ask(f"leave {point}") == "held"
        ours = new_line()
        join(ours)
        assert ours.number == 2
        crasher.send("go")
        assert wait_in_line(ours)
        ours.close()
        if crasher.hear() != "killed":
            break
    assert point > 10


def wait_in_line(line: Line) -> bool:
    """From the line to the token."""
    while (fd := line.ahead()) >= 0:
        assert hung_up(fd)
        os.close(fd)
    eventually(line.token_try)
    line.want_drop()
    return line.has_token
