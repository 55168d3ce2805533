"""Holds the edges of real machines against their tables, in every test: see `tests/conftest.py`.

A test that puts a machine into a state by hand is marked `plants_faults`, and is left alone.  Which edges real machines took in the whole
run is told at its end; that no edge is without a check is a claim of `specs`, which does not depend on what happened to run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lsm.machines import MACHINES
from lsm.machines.replay import Replay, untaken
from lsm.machines.table import Edge, Machine
from lsm.runtime.executor import Executor, Fired, Observer

Taken = set[tuple[str, Edge]]
TAKEN = pytest.StashKey[Taken]()


class Watch:
    """Follows every executor that is made while it is installed."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self._replay = Replay()
        self._numbers = itertools.count()

    @property
    def edges(self) -> Taken:
        return self._replay.edges

    @contextmanager
    def installed(self) -> Iterator[None]:
        make = Executor.__init__

        def watched(executor: Executor, machine: Machine, subject: str, observer: Observer | None = None) -> None:
            make(executor, machine, subject, self.observer(machine, observer))

        Executor.__init__ = watched  # type: ignore[method-assign]
        try:
            yield
        finally:
            Executor.__init__ = make  # type: ignore[method-assign]

    def observer(self, machine: Machine, other: Observer | None) -> Observer:
        """For one instance; what the test itself observes with comes after."""
        number = next(self._numbers)

        def observe(fired: Fired) -> None:
            if wrong := self._replay.take(number, fired, machine):
                self.mistakes.append(f"{fired.machine} of {fired.subject!r}: {wrong}")
            if other is not None:
                other(fired)

        return observe


@pytest.fixture(autouse=True)
def edges_follow_from_their_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Design 9: each test's edges, recorded in memory and checked alone."""
    if request.node.get_closest_marker("plants_faults"):
        yield
        return
    watch = Watch()
    with watch.installed():
        yield
    request.config.stash.setdefault(TAKEN, set()).update(watch.edges)
    assert watch.mistakes == []


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands what it saw to the process that started it."""
    if hasattr(session.config, "workeroutput"):
        numbers = {(name, edge): place for name, table in MACHINES.items() for place, edge in enumerate(table.edges)}
        taken = session.config.stash.get(TAKEN, set())
        session.config.workeroutput["edges"] = [(name, numbers[name, edge]) for name, edge in taken if (name, edge) in numbers]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    output = getattr(node, "workeroutput", {})  # not there when the worker crashed
    taken = {(name, MACHINES[name].edges[place]) for name, place in output.get("edges", ())}
    node.config.stash.setdefault(TAKEN, set()).update(taken)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    taken = config.stash.get(TAKEN, set())
    if taken:
        missed = untaken(taken)
        total = sum(len(table.edges) for table in MACHINES.values())
        terminalreporter.write_line(f"real machines took {total - len(missed)} of {total} different edges, each held against its table")
        if config.get_verbosity() > 0:
            for name, edge in missed:
                terminalreporter.write_line(f"  not taken: {name}: {edge.source}, {edge.event} {' '.join(edge.when)}")
