"""`step` is the meaning of a table, and `lint` catches every way to break the rules, planted one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lsm.machines import MACHINES
from lsm.machines.table import Edge, Machine, Refused, holds, ignoring, lint, step

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
    ignores=ignoring("push", "open"),
)

MISTAKES = {
    "initial state 'ajar' is not a state": replace(DOOR, initial="ajar"),
    "ajar/pull: unknown state 'ajar'": replace(DOOR, edges=(*DOOR.edges, Edge("ajar", "pull", "shut"))),
    "open/slam: unknown state 'ajar'": replace(DOOR, edges=(*DOOR.edges, Edge("open", "slam", "ajar"))),
    "open/slam: unknown fact '!oiled'": replace(DOOR, edges=(*DOOR.edges, Edge("open", "slam", "shut", when=("!oiled",)))),
    "open/slam: unknown effect 'bang'": replace(DOOR, edges=(*DOOR.edges, Edge("open", "slam", "shut", do=("bang",)))),
    "ignores an unknown pair ajar/push": replace(DOOR, ignores=DOOR.ignores | ignoring("push", "ajar")),
    "ignores an unknown pair open/kick": replace(DOOR, ignores=DOOR.ignores | ignoring("kick", "open")),
    "open/pull: both an edge and ignored": replace(DOOR, ignores=DOOR.ignores | ignoring("pull", "open")),
    "shut/push: 2 edges when {'locked': False}": replace(
        DOOR, edges=(*DOOR.edges, Edge("shut", "push", "shut", when=("!locked",)))
    ),
    "shut/push: 0 edges when {'locked': True}": replace(DOOR, edges=(DOOR.edges[0], DOOR.edges[2])),
    "state 'attic' cannot be reached": replace(DOOR, states={**DOOR.states, "attic": "far"}),
    "fact 'oiled' is never asked": replace(DOOR, facts={**DOOR.facts, "oiled": "smooth"}),
    "effect 'bang' is never done": replace(DOOR, effects={**DOOR.effects, "bang": "loud"}),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
def test_every_table_is_sound(machine: Machine) -> None:
    assert lint(machine) == []


def test_the_example_is_sound() -> None:
    """So that each mistake below is the only one."""
    assert lint(DOOR) == []


@pytest.mark.parametrize(("mistake", "machine"), MISTAKES.items(), ids=MISTAKES.keys())
def test_lint_names_the_mistake(mistake: str, machine: Machine) -> None:
    assert mistake in lint(machine)


def test_step_takes_the_edge_whose_guard_holds() -> None:
    assert step(DOOR, "shut", "push", {"locked": False}) == ("open", ("creak", "bump"))
    assert step(DOOR, "shut", "push", {"locked": True}) == ("shut", ("bump",))


def test_step_stays_and_does_nothing_where_the_event_is_ignored() -> None:
    assert step(DOOR, "open", "push", {"locked": True}) == ("open", ())


@pytest.mark.parametrize("event", ["pull", "kick"])
def test_step_refuses_what_the_table_does_not_know(event: str) -> None:
    with pytest.raises(Refused, match=f"door: '{event}' is refused in 'shut'"):
        step(DOOR, "shut", event, {"locked": False})


def test_all_facts_of_a_guard_must_hold() -> None:
    assert holds((), {})
    assert holds(("a", "!b"), {"a": True, "b": False})
    assert not holds(("a", "!b"), {"a": True, "b": True})
    assert not holds(("a", "!b"), {"a": False, "b": False})


def test_events_are_listed_once_in_the_order_of_first_mention() -> None:
    assert DOOR.events == ("push", "pull")
