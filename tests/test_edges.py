"""The watch over real machines is awake, and does not get in the way."""

from __future__ import annotations

import pytest

from lsm.machines import SLEEP
from lsm.machines.table import Edge, Machine
from lsm.runtime.executor import Executor, Fired
from tests.edges import Watch

LAMP = Machine("lamp", "off", {"off": "", "on": ""}, {}, {}, (Edge("off", "press", "on"), Edge("on", "press", "off")))


def test_lawful_edges_pass_and_are_counted() -> None:
    watch = Watch()
    seen: list[Fired] = []
    with watch.installed():
        first, second = Executor(SLEEP, "a", seen.append), Executor(SLEEP, "a")
        for machine in (first, second):
            assert machine.fire("demand") == ("token_need",)
    assert watch.mistakes == []
    assert watch.edges == {("sleep", SLEEP.edges[0])}
    assert len(seen) == 1


@pytest.mark.plants_faults
def test_an_edge_that_does_not_follow_is_noticed() -> None:
    watch = Watch()
    with watch.installed():
        lamp = Executor(LAMP, "a")
    lamp.fire("press")
    lamp._model.state = "off"
    lamp.fire("press")
    assert watch.mistakes == ["lamp of 'a': it stood in 'on', but the edge starts in 'off'"]


@pytest.mark.plants_faults
def test_an_executor_that_is_not_the_table_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    with watch.installed():
        lamp = Executor(LAMP, "a")
    monkeypatch.setattr(Executor, "_take", lambda self, source, event, facts: LAMP.edges[1])
    lamp.fire("press")
    assert "the table leads to 'on' and does [], the record to 'off'" in watch.mistakes[0]


def test_nothing_is_watched_any_more_afterwards() -> None:
    before = Executor.__init__
    with Watch().installed():
        assert Executor.__init__ is not before
    assert Executor.__init__ is before
