"""Visiting one state of each kind counts exactly what visiting all of them counts."""

from __future__ import annotations

from itertools import permutations

import pytest

from specs.explore import reach
from specs.symmetry import Violated, count_orbits
from specs.worlds import token, token_claims
from specs.worlds.token_state import Arena
from specs.worlds.token_symmetry import _renamed, canonical


@pytest.fixture(scope="module")
def states() -> list[Arena]:
    return reach(token.initial(2), token.World().successors, 100_000).states


def test_the_counts_are_those_of_the_whole_world(states: list[Arena]) -> None:
    successors = token.World().successors
    count = count_orbits(token.initial(2), successors, canonical, token_claims.INVARIANTS)
    assert (count.states, count.transitions) == (len(states), sum(len(successors(state)) for state in states))
    assert count.orbits == len({canonical(state)[0] for state in states})


def test_all_names_of_one_state_have_one_representative(states: list[Arena]) -> None:
    """And as many different states have it as its orbit is said to be large.  Three processes: the third asleep, dead, or like another."""
    for state in states[::37]:
        for third in (state.processes[0], state.processes[1]._replace(ticket=False)):
            wider = state._replace(processes=(*state.processes, third))
            renamed = {_renamed(wider, order) for order in permutations(range(3))}
            assert {canonical(other) for other in renamed} == {(canonical(wider)[0], len(renamed))}


def test_the_future_does_not_depend_on_names(states: list[Arena]) -> None:
    successors = token.World().successors
    for state in states[::11]:
        swapped = _renamed(state, (1, 0))
        futures = [sorted(canonical(target)[0] for _, target in successors(names)) for names in (state, swapped)]
        assert futures[0] == futures[1]


def test_a_broken_invariant_and_a_dead_end_are_told() -> None:
    with pytest.raises(Violated, match="nobody is ever dead"):
        invariants = {"nobody is ever dead": lambda a: all(p.state != "dead" for p in a.processes)}
        count_orbits(token.initial(2), token.World().successors, canonical, invariants)
    with pytest.raises(Violated, match="no step is left"):
        count_orbits(token.initial(2), lambda state: [], canonical, {})
