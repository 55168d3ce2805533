"""The one notation for a machine: names only, no callables.

So that the same table is executed (`runtime.executor`), explored (`specs.explore`), drawn, and exported to Promela.

Rules
  1. Everything that moves a machine stands in its table.
  2. Facts are booleans, sampled once, when the event is delivered.
  3. Effects are names that the owner performs, in order; what comes of them comes back as events.
  4. For each (state, event) there is an edge, an `ignores` entry, or a refusal (`Refused`).
  5. The guards of one (state, event) are exclusive and exhaustive; `lint` proves it over all truth assignments.

`step` is the meaning of a table.  Whatever executes one must agree with it on every (state, event, facts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    event: str
    target: str
    when: tuple[str, ...] = ()  # facts that must hold; "!x" negates
    do: tuple[str, ...] = ()  # effects, in order
    why: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    initial: str
    states: Mapping[str, str]  # name -> meaning
    facts: Mapping[str, str]
    effects: Mapping[str, str]
    edges: tuple[Edge, ...]
    ignores: frozenset[tuple[str, str]] = frozenset()

    @property
    def events(self) -> tuple[str, ...]:
        """Every event that some edge knows, in order of first mention."""
        return tuple(dict.fromkeys(edge.event for edge in self.edges))


class Refused(Exception):
    """The event has no edge here and is not ignored.  A mistake of the caller: nothing was changed."""

    def __init__(self, machine: Machine, state: str, event: str) -> None:
        super().__init__(f"{machine.name}: {event!r} is refused in {state!r}")


Step = tuple[str, tuple[str, ...]]  # (target state, effects)


class Instance(Protocol):
    """A machine in some state.  `fire` takes one edge and returns its effects; `Refused` changes nothing."""

    @property
    def state(self) -> str: ...

    def fire(self, event: str, **facts: bool) -> tuple[str, ...]: ...


def holds(when: tuple[str, ...], facts: Mapping[str, bool]) -> bool:
    return all(not facts[name[1:]] if name[0] == "!" else facts[name] for name in when)


def step(machine: Machine, state: str, event: str, facts: Mapping[str, bool]) -> Step:
    for edge in machine.edges:
        if edge.source == state and edge.event == event and holds(edge.when, facts):
            return edge.target, edge.do
    if (state, event) in machine.ignores:
        return state, ()
    raise Refused(machine, state, event)


def ignoring(event: str, *states: str) -> frozenset[tuple[str, str]]:
    """`ignores` entries of one event."""
    return frozenset((state, event) for state in states)


def lint(machine: Machine) -> list[str]:
    """Every way in which the table breaks the rules above, in words; empty when it is sound."""
    return [*_unknown_names(machine), *_ambiguous_guards(machine), *_dead_names(machine)]


def _unknown_names(machine: Machine) -> Iterator[str]:
    if machine.initial not in machine.states:
        yield f"initial state {machine.initial!r} is not a state"
    for edge in machine.edges:
        for state in (edge.source, edge.target):
            if state not in machine.states:
                yield f"{edge.source}/{edge.event}: unknown state {state!r}"
        for fact in edge.when:
            if fact.removeprefix("!") not in machine.facts:
                yield f"{edge.source}/{edge.event}: unknown fact {fact!r}"
        for effect in edge.do:
            if effect not in machine.effects:
                yield f"{edge.source}/{edge.event}: unknown effect {effect!r}"
    for state, event in machine.ignores:
        if state not in machine.states or event not in machine.events:
            yield f"ignores an unknown pair {state}/{event}"


def _ambiguous_guards(machine: Machine) -> Iterator[str]:
    for state, event in product(machine.states, machine.events):
        edges = [edge for edge in machine.edges if (edge.source, edge.event) == (state, event)]
        if edges and (state, event) in machine.ignores:
            yield f"{state}/{event}: both an edge and ignored"
        names = sorted({fact.removeprefix("!") for edge in edges for fact in edge.when})
        for truth in product((False, True), repeat=len(names)):
            facts = dict(zip(names, truth, strict=True))
            count = sum(holds(edge.when, facts) for edge in edges)
            if edges and count != 1:
                yield f"{state}/{event}: {count} edges when {facts}"


def _dead_names(machine: Machine) -> Iterator[str]:
    reached, todo = {machine.initial}, [machine.initial]
    while todo:
        state = todo.pop()
        for edge in machine.edges:
            if edge.source == state and edge.target not in reached:
                reached.add(edge.target)
                todo.append(edge.target)
    for state in machine.states:
        if state not in reached:
            yield f"state {state!r} cannot be reached"
    used_facts = {fact.removeprefix("!") for edge in machine.edges for fact in edge.when}
    used_effects = {effect for edge in machine.edges for effect in edge.do}
    for fact in machine.facts:
        if fact not in used_facts:
            yield f"fact {fact!r} is never asked"
    for effect in machine.effects:
        if effect not in used_effects:
            yield f"effect {effect!r} is never done"
