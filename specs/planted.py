"""Planted mistakes: each must be caught, by the claim and at the length that stand here.  They prove that the checks are awake.

A mistake changes a table, or the world around it (`mistake` in its faults or scenario).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lsm.machines import LOAD, RESIDENCY, SLEEP, TOKEN
from lsm.machines.table import Edge, Machine
from lsm.machines.token import LEAVE
from specs.explore import Path, first_broken, first_stranded, reach
from specs.fairness import fair_lasso
from specs.worlds import owner, owner_claims, token, token_claims
from specs.worlds.owner_state import Scenario
from specs.worlds.token_state import Faults

LIMIT = 400_000
QUIET = Faults(stranger=False, map_fails=False, releases=False)
CALM = Scenario(clients=1, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False, file_changes=False, line_fails=False)
FULL = Scenario(clients=1, inbox_limit=2, rest_calls=False, wake_calls=False)


@dataclass(frozen=True, slots=True)
class Mistake:
    name: str
    about: str  # requirement
    claim: str  # that catches it
    steps: int  # of the shortest way to see it
    find: Callable[[], tuple[str, Path[Any]] | None]


def in_line(name: str, about: str, claim: str, steps: int, table: Machine = TOKEN, faults: Faults = QUIET, n: int = 2) -> Mistake:
    """A mistake that some invariant of the line, or its goal, must catch."""

    def find() -> tuple[str, Path[Any]] | None:
        world = token.World(faults, table)
        if claim not in token_claims.GOALS:
            return first_broken(token.initial(n), world.successors, token_claims.INVARIANTS, LIMIT)
        graph = reach(token.initial(n), world.successors, LIMIT)
        stranded = first_stranded(graph, token_claims.GOALS[claim])
        return None if stranded is None else (claim, graph.path(stranded))

    return Mistake(name, about, claim, steps, find)


def in_owner(name: str, about: str, claim: str, steps: int, *tables: Machine, scenario: Scenario = CALM) -> Mistake:
    """A mistake that some invariant of one model's owner must catch, or that makes something last for ever."""

    def find() -> tuple[str, Path[Any]] | None:
        world = owner.World(scenario, {table.name: table for table in tables})
        if claim in owner_claims.INVARIANTS:
            return first_broken(owner.initial(scenario), world.successors, owner_claims.INVARIANTS, LIMIT)
        graph = reach(owner.initial(scenario), world.successors, LIMIT)
        lasso = fair_lasso(graph, owner_claims.PASSING[claim], owner_claims.group)
        return None if lasso is None else (claim, lasso)

    return Mistake(name, about, claim, steps, find)


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


def hasty(edge: Edge) -> Edge:
    """A look that does not ask whether the minimum hold is over."""
    if edge.event != "look":
        return edge
    if edge.when == ("!rested",):
        return replace(edge, when=("wanted", "!wanted"))  # never
    return replace(edge, when=tuple(fact for fact in edge.when if fact != "rested"))


LINE = (
    in_line("the token goes before the memory", "S10", "resident holds the token", 19,
            at(TOKEN, "draining", "drained", do=("device_unmap", "token_drop"))),
    in_line("the memory stays", "S10", "resident holds the token", 19,
            at(TOKEN, "draining", "drained", target="asleep", do=("token_drop", *LEAVE, "tell_left"))),
    in_line("the ticket goes before the token", "S1", "the first finds the token free of the living", 26,
            at(TOKEN, "sleeping", "unmapped", do=(*LEAVE, "token_drop", "tell_left"))),
    in_line("the ticket is closed before it is unlinked", "S1", "a live ticket is listed", 16,
            edited(TOKEN, lambda edge: swapped(edge, "ticket_unlink", "ticket_close")), n=3),
    in_line("no second look when the one ahead is gone", "S1", "nobody is overtaken", 24,
            at(TOKEN, "waiting", "ahead_gone", target="taking", do=("token_try",)), n=3),
    in_line("numbers are given out without the door", "S1", "a live ticket is listed", 9,
            faults=replace(QUIET, mistake="no door")),
    in_line("the ticket is locked after the door is open", "S1", "a live ticket is listed", 10,
            at(TOKEN, "joining", "made", do=("door_open", "ticket_lock", "bell_ring", "look_ahead"))),
    in_line("waiters sweep dead tickets outside the door", "S1", "a live ticket is listed", 13,
            faults=replace(QUIET, mistake="waiters sweep"), n=3),
    in_line("ticket files are used again", "S1", "nobody waits for one behind", 25,
            faults=replace(QUIET, mistake="slots are used again"), n=3),
    in_line("the bell is rung before wanting can be seen", "S1", "who waits is seen", 5,
            faults=replace(QUIET, mistake="rings before it wants")),
    in_line("a lost ring, and nobody looks now and then", "S1", "process 0 is awake", 21,
            faults=replace(QUIET, crash=False, cancel=False, line_fails=False, serves=False, slow_check=False)),
    in_line("a cancel keeps its share of want.lock", "S1", "asleep keeps nothing", 11,
            at(TOKEN, "waiting", "cancel", do=LEAVE)),
    in_line("a full disk leaves the door shut", "S1", "asleep keeps nothing", 5,
            at(TOKEN, "joining", "line_failed", do=("want_drop", "tell_left"))),
    in_line("the minimum hold is not asked for", "S3", "contention respects the minimum hold", 17, edited(TOKEN, hasty)),
    in_line("the token is let go while a map is tried again", "S10", "the token is held exactly in its states", 13,
            at(TOKEN, "waking", "map_failed", "patient", do=("token_drop", "backoff_start")), replace(QUIET, map_fails=True)),
)  # fmt: skip

RACING_TOKEN = replace(
    at(at(TOKEN, "awake", "release", do=("drain",)), "awake", "look", "rested", "wanted", "due", do=("tell_yielding", "drain")),
    effects={**TOKEN.effects, "drain": SLEEP.effects["drain"]},
)
RACING_SLEEP = edited(SLEEP, lambda edge: replace(edge, do=tuple(effect for effect in edge.do if effect != "drain")))
IDLE_OFF = replace(CALM, idle_sleep=False)

OWNER = (
    in_owner("demand that came while falling asleep is forgotten", "S2", "a client that waits", 33,
             at(SLEEP, "falling_asleep", "device_left", "demanded", target="asleep", do=())),
    in_owner("demand that came after a cancel is forgotten", "S2", "a client that waits", 40,
             at(SLEEP, "waking", "device_cancelled", "demanded", target="asleep", do=())),
    in_owner("requests do not wake while idle sleep is off", "S8", "a client that waits", 32,
             scenario=replace(IDLE_OFF, mistake="wakes only for idle sleep")),
    in_owner("a failed wake tells nobody", "S2", "a client that waits", 45, at(SLEEP, "waking", "device_left", do=())),
    in_owner("the line fails and SLEEP is not told", "S2", "a client that waits", 36,
             at(TOKEN, "waiting", "line_failed", do=(*LEAVE, "want_drop")), scenario=replace(CALM, line_fails=True)),
    in_owner("the engine is not stopped before the device is left", "S10", "falling asleep", 21,
             at(SLEEP, "awake", "rest", do=("idle_stop", "token_release")), scenario=replace(CALM, rest_calls=True)),
    in_owner("TOKEN stops what SLEEP starts", "S10", "the engine runs only when awake", 23, RACING_TOKEN, RACING_SLEEP),
    in_owner("a model is loaded without the token", "S7", "memory on the device only with the token", 3,
             at(LOAD, "unloaded", "load", target="loading", do=("demand_add", "engine_load"))),
    in_owner("the token is told before the memory has left", "S10", "memory on the device only with the token", 25,
             at(RESIDENCY, "resident", "leave", do=("tell_unmapped", "release_compute", "release_weights", "release_kv"))),
    in_owner("the KV cache comes back after the wake", "S6", "a batch runs only with everything on the device", 44,
             scenario=replace(CALM, mistake="the KV cache comes back later")),
    in_owner("a failed load keeps its demand", "S7", "demand is the number of those who wait", 12,
             at(LOAD, "loading", "load_failed", "hopeless", do=("residency_failed",))),
    in_owner("a load that was called off is granted", "S7", "no event is refused", 11,
             without(LOAD, ("unloaded", "granted"), ("failed", "granted")), scenario=FULL),
    in_owner("an unload while memory moves is refused", "S10", "no event is refused", 29,
             without(RESIDENCY, ("leaving", "freed"), ("entering", "freed")), scenario=FULL),
    in_owner("a retry after the file has changed is refused", "S10", "no event is refused", 45,
             without(RESIDENCY, ("broken", "enter")), scenario=replace(CALM, file_changes=True)),
    in_owner("rest is told while SLEEP still wakes", "S7", "a load that waits for the token", 28,
             replace(at(LOAD, "unloading", "freed", do=("residency_freed", "rest")),
                     effects={**LOAD.effects, "rest": RESIDENCY.effects["rest"]}),
             at(RESIDENCY, "resident", "freed", do=()), scenario=FULL),
    in_owner("answers of the line queue behind a cancel", "S1", "the token's lock is held exactly in its states", 7,
             scenario=replace(CALM, mistake="answers queue behind the inbox")),
)  # fmt: skip

PLANTED = {mistake.name: mistake for mistake in (*LINE, *OWNER)}
