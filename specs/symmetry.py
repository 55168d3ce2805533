"""Counts every state of a world whose processes are all alike, visiting one state of each kind.

Two states that differ only in which process is which have the same future with the names exchanged, and both can be reached when one
can, since at the start all processes are equal.  So it is enough to visit one representative of each orbit (Clarke, Enders, Filkorn and
Jha, "Exploiting symmetry in temporal logic model checking", 1996).  The orbit of a state has N! / (renamings that change nothing)
members: the counts are those of the whole world, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specs.explore import Predicate, State, Successors, TooManyStates

Canonical = Callable[[State], tuple[State, int]]  # the representative of a state's orbit, and how many states are in it


@dataclass(frozen=True, slots=True)
class Count:
    states: int
    transitions: int
    orbits: int


class Violated(Exception):
    """An invariant is broken; a world of fewer processes, explored plainly, tells the way there."""


def count_orbits(
    initial: State,
    successors: Successors[State],
    canonical: Canonical[State],
    invariants: Mapping[str, Predicate[State]],
    limit: int = 50_000_000,
) -> Count:
    """Every invariant holds in every state, and no state is without successors.  The invariants must not depend on names.

    Raises:
        Violated: naming the invariant and the state.
        TooManyStates: there are more than `limit` orbits.
    """
    first, states = canonical(initial)
    seen = {first}
    frontier = [first]
    transitions = 0
    while frontier:
        found = []
        for state in frontier:
            for name, holds in invariants.items():
                if not holds(state):
                    raise Violated(f"{name}: {state}")
            steps = successors(state)
            n_steps = 0
            for _, target in steps:
                n_steps += 1
                representative, size = canonical(target)
                if representative not in seen:
                    seen.add(representative)
                    found.append(representative)
                    states += size
            if not n_steps:
                raise Violated(f"no step is left: {state}")
            transitions += n_steps * canonical(state)[1]
        if len(seen) > limit:
            raise TooManyStates(f"more than {limit} orbits")
        frontier = found
    return Count(states, transitions, len(seen))
