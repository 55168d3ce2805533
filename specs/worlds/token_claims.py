"""What must hold for every number of processes that share an arena."""

from __future__ import annotations

from collections.abc import Iterator

from specs.explore import Predicate
from specs.worlds.token_state import DEAD, FIRST, HOLDS, LINED, NOBODY, Arena, Process


def _lined(arena: Arena) -> Iterator[tuple[int, Process]]:
    return ((i, p) for i, p in enumerate(arena.processes) if p.state in LINED and p.ticket)


def _ahead(arena: Arena, i: int) -> tuple[int, ...]:
    """Those whose tickets stand before that of `i`, dead ones not counted; nobody if `i` is not in the line."""
    place = arena.line.index(i) if i in arena.line else 0
    return tuple(owner for owner in arena.line[:place] if owner != NOBODY and arena.processes[owner].ticket)


def _watches_well(arena: Arena, i: int, p: Process) -> bool:
    """Whoever waits watches a ticket before its own, or one that is about to be let go."""
    if p.watch < 0 or i not in arena.line or not arena.processes[p.watch].ticket:
        return True
    watched = arena.processes[p.watch]
    return p.watch in _ahead(arena, i) or watched.state == DEAD or watched.todo[:1] == ("ticket_close",)


INVARIANTS: dict[str, Predicate[Arena]] = {
    "one token": lambda a: sum(p.token for p in a.processes) <= 1,
    "one resident": lambda a: sum(p.resident for p in a.processes) <= 1,
    "resident holds the token": lambda a: all(not p.resident or p.token or p.state == DEAD for p in a.processes),
    "serves only when resident": lambda a: all(not p.busy or p.resident for p in a.processes),
    "the token is held exactly in its states": lambda a: all(
        p.token == (p.state in HOLDS or "token_drop" in p.todo) for p in a.processes if p.state != DEAD
    ),
    "a live ticket is listed": lambda a: all(i in a.line for i, _ in _lined(a)),
    "nobody is overtaken": lambda a: all(not p.token or not _ahead(a, i) for i, p in enumerate(a.processes)),
    "the first finds the token free of the living": lambda a: all(
        p.state != "taking" or not any(q.token for q in a.processes if q.state != DEAD) for p in a.processes
    ),
    "one is first": lambda a: sum(p.state == "taking" or p.watch == FIRST for p in a.processes) <= 1,
    "nobody waits for one behind": lambda a: all(_watches_well(a, i, p) for i, p in enumerate(a.processes)),
    "who waits is seen": lambda a: all(p.want for _, p in _lined(a) if p.state in ("waiting", "taking")),
    "asleep keeps nothing": lambda a: all(
        not (p.want or p.ticket or p.token or p.door or p.resident) for p in a.processes if p.state == "asleep" and not p.todo
    ),
    "contention respects the minimum hold": lambda a: all(not p.fresh or p.state == "awake" for p in a.processes),
    "nobody gives the device away for nothing": lambda a: not any(p.needless for p in a.processes),
    "the token is taken from the line": lambda a: all(p.ticket for p in a.processes if p.state in HOLDS),
    "files of the dead are bounded": lambda a: len(a.line) <= len(a.processes),
}


def awake(i: int) -> Predicate[Arena]:
    return lambda arena: arena.processes[i].state == "awake"


GOALS: dict[str, Predicate[Arena]] = {"process 0 is awake": awake(0)}
