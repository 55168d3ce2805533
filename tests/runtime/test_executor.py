"""The executor agrees with `step` on everything, and changes nothing when it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from lsm.machines import MACHINES
from lsm.machines.table import Edge, Machine, Refused, step
from lsm.runtime.executor import Executor, Fired

pytestmark = pytest.mark.plants_faults

EVERY = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())

DOOR = Machine(
    name="door",
    initial="shut",
    states={"shut": "closed", "open": "open"},
    facts={"locked": "the key has been turned"},
    effects={"creak": "noise", "bump": "more noise"},
    edges=(
        Edge("shut", "push", "open", when=("!locked",), do=("creak", "bump")),
        Edge("shut", "push", "shut", when=("locked",), do=("bump",)),
        Edge("open", "pull", "shut"),
    ),
    ignores=frozenset({("open", "push")}),
)


def truths(machine: Machine) -> Iterator[dict[str, bool]]:
    for bits in product((False, True), repeat=len(machine.facts)):
        yield dict(zip(machine.facts, bits, strict=True))


def executor_in(machine: Machine, state: str, seen: list[Fired] | None = None) -> Executor:
    """An instance that stands in `state`, without the way there."""
    executor = Executor(machine, "subject", seen.append if seen is not None else None)
    executor._model.state = state
    return executor


@EVERY
def test_agrees_with_step_on_every_state_event_and_fact(machine: Machine) -> None:
    """S2: the table that was checked is the table that runs."""
    asked = 0
    for state, event, facts in product(machine.states, (*machine.events, "unheard-of"), list(truths(machine))):
        executor = executor_in(machine, state)
        try:
            expected = step(machine, state, event, facts)
        except Refused as refused:
            with pytest.raises(Refused, match=str(refused)):
                executor.fire(event, **facts)
            assert executor.state == state
        else:
            effects = executor.fire(event, **facts)
            assert (executor.state, effects) == expected
        executor.close()
        asked += 1
    assert asked == len(machine.states) * (len(machine.events) + 1) * 2 ** len(machine.facts)


@EVERY
def test_starts_in_the_initial_state(machine: Machine) -> None:
    executor = Executor(machine, "subject")
    assert executor.state == machine.initial
    executor.close()


def test_an_edge_is_observed_once_with_everything_that_decided_it() -> None:
    seen: list[Fired] = []
    door = executor_in(DOOR, "shut", seen)
    assert door.fire("push", locked=True) == ("bump",)
    assert door.fire("push", locked=False) == ("creak", "bump")
    door.close()
    assert [(f.machine, f.subject, f.source, f.event, f.facts, f.target, f.effects) for f in seen] == [
        ("door", "subject", "shut", "push", {"locked": True}, "shut", ("bump",)),
        ("door", "subject", "shut", "push", {"locked": False}, "open", ("creak", "bump")),
    ]
    assert 0 < seen[0].t_ns <= seen[1].t_ns


def test_what_is_ignored_or_refused_is_not_observed() -> None:
    seen: list[Fired] = []
    door = executor_in(DOOR, "open", seen)
    assert door.fire("push") == ()
    door.fire("pull")
    with pytest.raises(Refused, match="door: 'pull' is refused in 'shut'"):
        door.fire("pull")
    door.close()
    assert [f.event for f in seen] == ["pull"]
    assert door.state == "shut"


def test_a_missing_fact_is_named_and_nothing_happens() -> None:
    door = executor_in(DOOR, "shut")
    with pytest.raises(AssertionError, match=r"door/subject: 'push' in 'shut': missing facts \['locked'\]"):
        door.fire("push")
    assert door.state == "shut"
    door.close()


def test_an_unknown_fact_is_named_and_nothing_happens() -> None:
    door = executor_in(DOOR, "open")
    with pytest.raises(AssertionError, match=r"unknown facts \['lockd'\]"):
        door.fire("pull", lockd=True)
    assert door.state == "open"
    door.close()


def test_instances_of_one_table_are_independent() -> None:
    first, second = Executor(DOOR, "first"), Executor(DOOR, "second")
    first.fire("push", locked=False)
    assert (first.state, second.state) == ("open", "shut")
    first.close()
    second.close()


def test_an_observer_may_fire_another_instance() -> None:
    """The engine is shared and has no queue: a nested event is delivered at once, not lost behind the outer one."""
    second = Executor(DOOR, "second")
    first = Executor(DOOR, "first", lambda fired: second.fire("push", locked=False) and None)
    assert first.fire("push", locked=False) == ("creak", "bump")
    assert (first.state, second.state) == ("open", "open")
    first.close()
    second.close()


def test_an_observer_that_fails_does_not_spoil_the_next_event() -> None:
    def fail(fired: Fired) -> None:
        raise RuntimeError("full disk")

    door = Executor(DOOR, "subject", fail)
    with pytest.raises(RuntimeError, match="full disk"):
        door.fire("push", locked=False)
    with pytest.raises(RuntimeError, match="full disk"):
        door.fire("pull")
    assert door.state == "shut"
    door.close()


def test_a_closed_instance_is_forgotten_and_refuses_to_move() -> None:
    door = Executor(DOOR, "subject")
    models = door._engine.models
    before = len(models)
    door.close()
    door.close()
    assert len(models) == before - 1
    assert door.state == "shut"
    with pytest.raises(AssertionError, match="closed"):
        door.fire("push", locked=False)


def test_a_mutant_with_the_same_name_gets_its_own_engine() -> None:
    mutant = Machine("door", "open", DOOR.states, DOOR.facts, DOOR.effects, DOOR.edges, DOOR.ignores)
    original, changed = Executor(DOOR, "original"), Executor(mutant, "mutant")
    assert (original.state, changed.state) == ("shut", "open")
    original.close()
    changed.close()
