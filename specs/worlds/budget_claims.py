"""What must hold for processes that share a device under a budget."""

from __future__ import annotations

from specs.explore import Predicate
from specs.fairness import FINITE
from specs.worlds.budget_state import DEAD, MOVES, Arena, Scenario


def invariants(scenario: Scenario) -> dict[str, Predicate[Arena]]:
    budget, needs = scenario.budget, scenario.needs
    return {
        "the device has no more than the budget": lambda a: sum(p.memory for p in a.processes) <= budget,
        "the ledger has no more than the budget": lambda a: sum(p.entry + p.old for p in a.processes) <= budget,
        "everything on the device is in the ledger": lambda a: all(p.memory <= p.entry for p in a.processes),
        "one token": lambda a: sum(p.token for p in a.processes) <= 1,
        "memory is moved in with the token": lambda a: all(p.token for p in a.processes if p.state in MOVES),
        "who serves or sleeps lets others move": lambda a: all(
            not p.token or p.todo or p.state in (*MOVES, "sleeping", DEAD) for p in a.processes
        ),
        "only who has the token asks": lambda a: all(p.token or not any(p.asks) or p.state == DEAD for p in a.processes),
        "serves only with everything on the device": lambda a: all(not p.busy or p.memory == needs for p in a.processes),
        "nobody leaves for nothing": lambda a: not any(p.needless for p in a.processes),
        "contention respects the minimum hold": lambda a: all(not p.fresh or p.state == "awake" for p in a.processes),
        "asleep keeps no lock": lambda a: all(
            not (p.token or any(p.asks) or i in a.line) for i, p in enumerate(a.processes) if p.state == "asleep" and not p.todo
        ),
    }


def all_fit(arena: Arena) -> bool:
    """Nobody is ever asked to leave: for a budget that holds all."""
    return not any(any(p.asks) for p in arena.processes)


GOALS: dict[str, Predicate[Arena]] = {"process 0 is awake": lambda a: a.processes[0].state == "awake"}

PASSING: dict[str, Predicate[Arena]] = {
    "who has a ticket waits": lambda a: a.processes[0].state in ("waiting", *MOVES),
    "who is asked stays": lambda a: a.processes[0].state == "awake" and any(p.asks[0] for p in a.processes),
}

FREE = ("need", "serve", "restart")  # nobody is obliged to
OFTEN = ("crash", "cancel", "release", "map_failed")  # only finitely often


def group(label: str) -> str | None:
    """Who is obliged to take a step, for weak fairness: each process, each of its clocks, its load."""
    kind, _, number = label.partition(".")
    if kind in FREE:
        return None
    if kind in OFTEN or kind.endswith("_lost"):
        return FINITE
    if kind in ("hold_over", "quantum_over", "done", "room_check", "evict"):
        return label
    return number
