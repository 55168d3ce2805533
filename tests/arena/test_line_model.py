"""Several lines against a model of ten lines: any order of steps, cancels and deaths."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lsm.arena.line import Line
from lsm.arena.status import status

from .helpers import hung_up, names

PLACES = 4
place = st.integers(0, PLACES - 1)


class LineModel(RuleBasedStateMachine):
    """S1: the model: who is in the door, who stands in the line, who holds. The rest follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.arena = Path(self.folder, "arena")
        self.lines = [Line(self.arena) for _ in range(PLACES)]
        self.asking = Line(self.arena)
        self.door: int | None = None
        self.standing: list[int] = []  # Those with a living ticket, in order.
        self.holder: int | None = None
        self.dead_names: set[str] = set()

    def teardown(self) -> None:
        for line in (*self.lines, self.asking):
            line.close()
        shutil.rmtree(self.folder)

    @rule(who=place)
    def enter_the_door(self, who: int) -> None:
        if who == self.door or who in self.standing:
            return
        assert self.lines[who].door_try() == (self.door is None)
        if self.door is None:
            self.door = who

    @precondition(lambda self: self.door is not None)
    @rule()
    def join(self) -> None:
        assert self.door is not None
        line = self.lines[self.door]
        line.ticket_make()
        assert line.number == 1 + max((self.lines[other].number for other in self.standing), default=0)
        line.ticket_lock()
        line.door_open()
        line.bell_ring()
        self.standing.append(self.door)
        self.door = None
        self.dead_names.clear()

    @precondition(lambda self: self.door is not None)
    @rule()
    def turn_back_in_the_door(self) -> None:
        assert self.door is not None
        self.lines[self.door].want_drop()
        self.lines[self.door].door_open()
        self.door = None

    @rule(who=place)
    def try_the_token(self, who: int) -> None:
        if who not in self.standing or who == self.holder:
            return
        first = self.lines[who].ahead()
        if first >= 0:
            os.close(first)
        assert (first == -1) == (who == self.standing[0])
        if first == -1:
            assert self.lines[who].token_try()
            self.lines[who].want_drop()
            self.holder = who

    @rule(who=place)
    def leave(self, who: int) -> None:
        watching = self.watch_from_behind(who)
        self.lines[who].leave()
        self.forget(who, watching)

    @rule(who=place)
    def die(self, who: int) -> None:
        """As the kernel does it: the descriptors are closed, the name stays."""
        if self.lines[who].number:
            self.dead_names.add(self.lines[who]._name)
        watching = self.watch_from_behind(who)
        self.lines[who]._abandon()
        self.lines[who] = Line(self.arena)
        self.forget(who, watching)

    def watch_from_behind(self, who: int) -> int:
        """What the next in line watches, if it watches this one; else -1."""
        if who not in self.standing[:-1]:
            return -1
        return self.lines[self.standing[self.standing.index(who) + 1]].ahead()

    def forget(self, who: int, watching: int) -> None:
        if watching >= 0:
            assert hung_up(watching, 0)
            os.close(watching)
        if who == self.door:
            self.door = None
        if who == self.holder:
            self.holder = None
        if who in self.standing:
            self.standing.remove(who)

    @invariant()
    def wanted_is_who_shares(self) -> None:
        waiting = set(self.standing) - {self.holder}
        assert self.asking.wanted() == bool(waiting or self.door is not None)

    @invariant()
    def names_are_the_living_and_the_unswept(self) -> None:
        assert set(names(self.arena)) == {self.lines[who]._name for who in self.standing} | self.dead_names

    @invariant()
    def status_agrees(self) -> None:
        seen = status(self.arena)
        assert (seen.holder is not None) == (self.holder is not None)
        assert [waiter.number for waiter in seen.waiting] == [self.lines[who].number for who in self.standing if who != self.holder]

    @invariant()
    def each_line_knows_its_state(self) -> None:
        for who, line in enumerate(self.lines):
            assert line.has_token == (who == self.holder) == (line.bell_fd >= 0)
            assert bool(line.number) == (who in self.standing)


TestLineModel = LineModel.TestCase
TestLineModel.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
