"""Holds edges that were taken against their tables: one after the other, each must be what `step` says.

The edges come from memory (a test) or from a trace file (`lsm verify`); both have the fields of `Taken`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lsm.machines import MACHINES
from lsm.machines.table import Edge, Machine, holds


class Taken(Protocol):
    """One edge, taken once.  `source`, `event`, `facts` go in; `target` and `effects` are what came out."""

    @property
    def machine(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def facts(self) -> Mapping[str, bool]: ...
    @property
    def target(self) -> str: ...
    @property
    def effects(self) -> Sequence[str]: ...


@dataclass(slots=True)
class Replay:
    """Follows any number of subjects from their initial states."""

    states: dict[Hashable, str] = field(default_factory=dict)  # subject -> where it stands
    edges: set[tuple[str, Edge]] = field(default_factory=set)  # (name of the machine, edge) that were taken
    count: int = 0

    def take(self, subject: Hashable, taken: Taken, machine: Machine | None = None) -> str:
        """Move the subject along; in words what is wrong with that, or "".

        The subject then stands where the record says, so that one mistake is told once.  `machine`: its table, if it is not one of ours.
        """
        table = machine or MACHINES[taken.machine]
        state = self.states.get(subject, table.initial)
        self.states[subject] = taken.target
        self.count += 1
        if taken.source != state:
            return f"it stood in {state!r}, but the edge starts in {taken.source!r}"
        edge = edge_of(table, taken.source, taken.event, taken.facts)
        if edge is None:
            return f"the table has no edge for {taken.event!r} in {taken.source!r} with {_words(taken.facts)}"
        if (edge.target, edge.do) != (taken.target, tuple(taken.effects)):
            told = f"the record to {taken.target!r} and does {list(taken.effects)}"
            return f"the table leads to {edge.target!r} and does {list(edge.do)}, {told}"
        self.edges.add((table.name, edge))
        return ""


def edge_of(machine: Machine, source: str, event: str, facts: Mapping[str, bool]) -> Edge | None:
    """The edge that `step` takes.  None: there is none, or a fact that decides it is missing."""
    for edge in machine.edges:
        if (edge.source, edge.event) == (source, event):
            if any(fact.removeprefix("!") not in facts for fact in edge.when):
                return None
            if holds(edge.when, facts):
                return edge
    return None


def untaken(edges: set[tuple[str, Edge]], tables: Mapping[str, Machine] = MACHINES) -> list[tuple[str, Edge]]:
    """The edges of the tables that are not among these, in the order of the tables."""
    return [(name, edge) for name, table in tables.items() for edge in table.edges if (name, edge) not in edges]


def _words(facts: Mapping[str, bool]) -> str:
    return ", ".join(f"{name}={truth}" for name, truth in facts.items()) or "no facts"
