"""Which states of the line are the same but for the names of the processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, permutations, product
from math import factorial, prod

from specs.worlds.token_state import NOBODY, Arena, Process

Colour = tuple[int, Process]  # of a process: all that can be told of it without naming another

OUTSIDE = 1_000  # a place in the line that nobody has; also a named process that has none
NAMED = 10_000  # added to the place of a process that is watched, so that it differs from the marks below zero


def canonical(arena: Arena) -> tuple[Arena, int]:
    """The representative of the states that differ from this one by names alone, and their number."""
    n = len(arena.processes)
    place = {owner: i for i, owner in enumerate(arena.line) if owner != NOBODY}
    coloured = sorted((_colour(place, i, process), i) for i, process in enumerate(arena.processes))
    groups = [[i for _, i in members] for _, members in groupby(coloured, key=lambda pair: pair[0])]
    if len(groups) == n:
        return _renamed(arena, [i for _, i in coloured]), factorial(n)
    named = {other for p in arena.processes for other in (p.watch, p.ghost) if other >= 0 and other not in place}
    if not named:  # those of one colour can be exchanged, and nothing changes
        return _renamed(arena, [i for _, i in coloured]), factorial(n) // prod(factorial(len(group)) for group in groups)
    candidates = [_renamed(arena, order) for order in _orders(groups)]
    representative = min(candidates)
    return representative, factorial(n) // candidates.count(representative)


def _colour(place: dict[int, int], i: int, p: Process) -> Colour:
    if p.watch >= 0 or p.ghost >= 0:
        p = p._replace(watch=_mark(place, p.watch), ghost=_mark(place, p.ghost))
    return place.get(i, OUTSIDE), p


def _mark(place: dict[int, int], other: int) -> int:
    return other if other < 0 else NAMED + place.get(other, OUTSIDE)


def _orders(groups: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    for choice in product(*(permutations(group) for group in groups)):
        yield [i for group in choice for i in group]


def _renamed(arena: Arena, order: Sequence[int]) -> Arena:
    """The process order[k] is called k from now on."""
    name = {old: new for new, old in enumerate(order)} | {mark: mark for mark in range(-3, 0)}
    processes = (arena.processes[old] for old in order)
    moved = tuple(p if p.watch < 0 and p.ghost < 0 else p._replace(watch=name[p.watch], ghost=name[p.ghost]) for p in processes)
    return Arena(tuple(name[owner] for owner in arena.line), tuple(map(_shared, moved)), arena.stranger)


@cache
def _shared(process: Process) -> Process:
    """One object for equal processes: a state then costs little more than its names."""
    return process
