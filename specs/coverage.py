"""Which edges of the tables the worlds take: what no world ever takes, no check has looked at."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from lsm.machines.replay import edge_of, untaken
from lsm.machines.table import Edge, Machine, Step, step
from specs.explore import reach
from specs.worlds import checkpoints, encoder, owner, owner_state, slots, slots_state, token

StepFunction = Callable[[Machine, str, str, Mapping[str, bool]], Step]


def listening(taken: set[tuple[str, Edge]]) -> StepFunction:
    """`step`, which also notes the edge."""

    def note(machine: Machine, state: str, event: str, facts: Mapping[str, bool]) -> Step:
        edge = edge_of(machine, state, event, facts)
        if edge is not None:
            taken.add((machine.name, edge))
        return step(machine, state, event, facts)

    return note


def never_taken() -> list[tuple[str, Edge]]:
    """The edges that no world takes.  The worlds are the smallest that leave none."""
    taken: set[tuple[str, Edge]] = set()
    for initial, world in _worlds():
        world.step = listening(taken)
        reach(initial, world.successors, LIMIT)
    return untaken(taken)


LIMIT = 100_000
CALLS = owner_state.Scenario(clients=1, inbox_limit=1)
MEETINGS = owner_state.Scenario(clients=1, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False)
KEEP_KV = owner_state.Scenario(clients=1, inbox_limit=1, load_calls=False, rest_calls=False, wake_calls=False, evict_kv=False)
SHORT = checkpoints.Scenario(length=2)
ENCODERS = tuple(
    encoder.Scenario(on_demand, budget, evict_kv, size)
    for size in (3, 4, 6)
    for on_demand in (True, False)
    for budget in (5, 8)
    for evict_kv in (True, False)
)
BUDGET = replace(MEETINGS, inbox_limit=1, evict_kv=False, load_calls=True, budget=True)
TWO = slots_state.Scenario(kinds=(slots_state.ANY, slots_state.FILL), prompt=3)


def _worlds() -> list[tuple[Hashable, Any]]:
    return [
        (token.initial(2), token.World()),
        *((owner.initial(scenario), owner.World(scenario)) for scenario in (CALLS, MEETINGS, KEEP_KV, BUDGET)),
        *((slots.initial(scenario), slots.World(scenario)) for scenario in (TWO, slots_state.SHIFT)),
        (checkpoints.initial(SHORT), checkpoints.World(SHORT)),
        *((encoder.initial(scenario), encoder.World(scenario)) for scenario in ENCODERS),
    ]
