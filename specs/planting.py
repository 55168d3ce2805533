"""How a mistake is planted, and looked for: in a table, or in the world around it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lsm.machines import TOKEN
from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.table import Edge, Machine
from specs.explore import Path, Predicate, Successors, first_broken, first_stranded, reach
from specs.fairness import Group, fair_lasso
from specs.worlds import (
    budget,
    budget_claims,
    budget_state,
    checkpoints,
    checkpoints_claims,
    encoder,
    encoder_claims,
    owner,
    owner_claims,
    owner_state,
    slots,
    slots_claims,
    slots_state,
    token,
    token_claims,
)
from specs.worlds.token_state import Faults

LIMIT = 400_000
QUIET = Faults(stranger=False, map_fails=False, releases=False)
CALM = owner_state.Scenario(
    clients=1, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False, file_changes=False, line_fails=False
)
TIGHT = encoder.Scenario()
FULL = owner_state.Scenario(clients=1, inbox_limit=2, rest_calls=False, wake_calls=False)

Found = tuple[str, Path[Any]]


@dataclass(frozen=True, slots=True)
class Mistake:
    name: str
    about: str  # requirement, or row of the catalogue of known faults
    claim: str  # that catches it
    steps: int  # of the shortest way to see it
    world: str  # line | budget | owner | slots | snapshots | encoder
    find: Callable[[], Found | None]


@dataclass(frozen=True, slots=True)
class Claims:
    """Of one world."""

    invariants: Mapping[str, Predicate[Any]]
    goals: Mapping[str, Predicate[Any]]
    passing: Mapping[str, Predicate[Any]]
    group: Group


LINE_CLAIMS = Claims(token_claims.INVARIANTS, token_claims.GOALS, {}, lambda label: None)
OWNER_CLAIMS = Claims(owner_claims.INVARIANTS, owner_claims.GOALS, owner_claims.PASSING, owner_claims.group)
CHECKPOINTS_CLAIMS = Claims(
    checkpoints_claims.INVARIANTS, checkpoints_claims.GOALS, checkpoints_claims.PASSING, checkpoints_claims.group
)
SLOTS_CLAIMS = Claims(slots_claims.INVARIANTS, slots_claims.GOALS, slots_claims.PASSING, slots_claims.group)


def search(claims: Claims, claim: str, initial: Hashable, successors: Successors[Any]) -> Found | None:
    """The invariant that breaks first; or the goal that gets out of reach, or what may last for ever, if the claim is one of these."""
    if claim in claims.invariants:
        return first_broken(initial, successors, claims.invariants, LIMIT)
    graph = reach(initial, successors, LIMIT)
    if claim in claims.goals:
        stranded = first_stranded(graph, claims.goals[claim])
        return None if stranded is None else (claim, graph.path(stranded))
    lasso = fair_lasso(graph, claims.passing[claim], claims.group)
    return None if lasso is None else (claim, lasso)


def in_line(name: str, about: str, claim: str, steps: int, table: Machine = TOKEN, faults: Faults = QUIET, n: int = 2) -> Mistake:
    """With `n` processes in one arena."""
    return Mistake(
        name, about, claim, steps, "line", lambda: search(LINE_CLAIMS, claim, token.initial(n), token.World(faults, table).successors)
    )


def in_budget(
    name: str, about: str, claim: str, steps: int, scenario: budget_state.Scenario, table: Machine = TOKEN, mistake: str = ""
) -> Mistake:
    """With processes under one budget.  What gets out of reach, or lasts for ever, does so although rings are lost and nobody dies."""
    planted = replace(scenario, mistake=mistake)
    claims = Claims(budget_claims.invariants(planted), budget_claims.GOALS, budget_claims.PASSING, budget_claims.group)
    return Mistake(
        name, about, claim, steps, "budget", lambda: search(claims, claim, budget.initial(planted), budget.World(planted, table).successors)
    )


def in_owner(name: str, about: str, claim: str, steps: int, *tables: Machine, scenario: owner_state.Scenario = CALM) -> Mistake:
    """With the owner of one model."""
    mutants = {table.name: table for table in tables}
    return Mistake(
        name, about, claim, steps, "owner",
        lambda: search(OWNER_CLAIMS, claim, owner.initial(scenario), owner.World(scenario, mutants).successors),
    )  # fmt: skip


def in_slots(
    name: str, about: str, claim: str, steps: int, *tables: Machine, scenario: slots_state.Scenario | None = None, **changes: Any
) -> Mistake:
    """With the slots and requests of one engine.  What lasts for ever does so without faults."""
    mutants = {table.name: table for table in tables}
    scenario = replace(scenario or slots_state.Scenario(), **{"faults": claim in slots_claims.INVARIANTS} | changes)
    return Mistake(
        name, about, claim, steps, "slots",
        lambda: search(SLOTS_CLAIMS, claim, slots.initial(scenario), slots.World(scenario, mutants).successors),
    )  # fmt: skip


def in_checkpoints(
    name: str, about: str, claim: str, steps: int, table: Machine = CHECKPOINT, mistake: str = "", *,
    stash: bool = False, guesses: bool = False
) -> Mistake:  # fmt: skip
    """With one slot and its snapshots, and perhaps a prompt in host memory, or guesses.  What lasts for ever does so without faults."""
    length, faults = 2 if stash or guesses else 4, claim in checkpoints_claims.INVARIANTS
    scenario = checkpoints.Scenario(length=length, mistake=mistake, faults=faults, stash=stash, guesses=guesses)
    return Mistake(
        name, about, claim, steps, "snapshots",
        lambda: search(CHECKPOINTS_CLAIMS, claim, checkpoints.initial(scenario), checkpoints.World(scenario, table).successors),
    )  # fmt: skip


def in_encoder(
    name: str, about: str, claim: str, steps: int, *tables: Machine, mistake: str = "", scenario: encoder.Scenario = TIGHT
) -> Mistake:
    """With an encoder that comes just in time."""
    mutants = {table.name: table for table in tables}
    planted = replace(scenario, mistake=mistake)
    return Mistake(
        name, about, claim, steps, "encoder",
        lambda: search(encoder_claims_of(planted), claim, encoder.initial(planted), encoder.World(planted, mutants).successors),
    )  # fmt: skip


def encoder_claims_of(scenario: encoder.Scenario) -> Claims:
    return Claims(encoder_claims.invariants(scenario), encoder_claims.goals(scenario), encoder_claims.PASSING, encoder_claims.group)


def edited(machine: Machine, change: Callable[[Edge], Edge | None], ignores: frozenset[tuple[str, str]] = frozenset()) -> Machine:
    """The table with every edge changed, or left out where `change` gives None."""
    edges = tuple(edge for edge in map(change, machine.edges) if edge is not None)
    return replace(machine, edges=edges, ignores=machine.ignores | ignores)


def at(machine: Machine, source: str, event: str, *when: str, **new: Any) -> Machine:
    """The table with the edges of one (source, event), and guards if given, changed."""

    def change(edge: Edge) -> Edge:
        here = (edge.source, edge.event) == (source, event) and (not when or edge.when == when)
        return replace(edge, **new) if here else edge

    changed = edited(machine, change)
    assert changed.edges != machine.edges, f"nothing was planted at {source}/{event}"
    return changed


def without(machine: Machine, *pairs: tuple[str, str], ignored: bool = False) -> Machine:
    """The table without the edges of some (source, event), which are ignored or refused instead."""
    ignores = frozenset(pairs) if ignored else frozenset()
    changed = edited(machine, lambda edge: None if (edge.source, edge.event) in pairs else edge, ignores)
    assert changed.edges != machine.edges, f"nothing was planted at {pairs}"
    return changed


def swapped(edge: Edge, one: str, other: str) -> Edge:
    names = {one: other, other: one}
    return replace(edge, do=tuple(names.get(effect, effect) for effect in edge.do))
