"""What must hold for slots and requests, in every state and on every fair run."""

from __future__ import annotations

from lsm.machines.request import ENDED, LIVE
from specs.explore import Predicate
from specs.fairness import FINITE
from specs.worlds.slots import PROMPTS
from specs.worlds.slots_state import NOBODY, ROWS, Engine

PHASES = {"prefilling": (*PROMPTS, "wait_other"), "generating": ("generating",)}  # of a request -> of its slot


def _belong_together(engine: Engine) -> bool:
    """A busy slot has one request that is under way, and that request has this slot."""
    owners = [r for r, request in enumerate(engine.requests) if request.slot != NOBODY]
    holders = [slot.request for slot in engine.slots if slot.request != NOBODY]
    return sorted(owners) == sorted(holders) and all(
        slot.request == NOBODY
        or (engine.requests[slot.request].slot == s and slot.state in PHASES.get(engine.requests[slot.request].state, ()))
        for s, slot in enumerate(engine.slots)
    )


def _wait_rightly(engine: Engine) -> bool:
    """Another choice of a job is in the queue, or its slot in `wait_other`, only while the first one is as far as that."""
    return all(
        engine.requests[request.of].state == request.state
        for request in engine.requests
        if request.of != NOBODY
        and (request.state == "queued" or (request.slot != NOBODY and engine.slots[request.slot].state == "wait_other"))
    )


INVARIANTS: dict[str, Predicate[Engine]] = {
    "no event is refused, no cancel is without effect": lambda e: not e.wrong,
    "each end is told once": lambda e: all(request.told == (request.state in ENDED) for request in e.requests),
    "a slot and its request belong together": _belong_together,
    "a slot without a request is idle": lambda e: all((slot.state == "idle") == (slot.request == NOBODY) for slot in e.slots),
    "exactly those who wait are in the queue": lambda e: (
        sorted(e.queue)
        == [r for r, request in enumerate(e.requests) if (request.state, request.of) == ("queued", NOBODY) and r not in e.late]
    ),
    "a choice waits for a prompt that is being decoded": _wait_rightly,
    "exactly the busy slots share batches": lambda e: sorted(e.order) == [s for s, slot in enumerate(e.slots) if slot.request != NOBODY],
    "the cache holds what a slot believes": lambda e: all(slot.believed == slot.cached for slot in e.slots),
}

GOALS: dict[str, Predicate[Engine]] = {
    "batches are of full size": lambda e: e.rows == ROWS,
    "every slot is idle": lambda e: not e.order and not e.queue,
    **{f"request {r} is done": (lambda e, r=r: e.requests[r].state == "done") for r in range(3)},  # type: ignore[misc]
}

PASSING: dict[str, Predicate[Engine]] = {
    f"request {r} under way": (lambda e, r=r: e.requests[r].state in LIVE)  # type: ignore[misc]
    for r in range(3)
}


def group(label: str) -> str | None:
    """Nobody has to come; who cancels, and what fails, does so finitely often; batches go on while there is work."""
    kind = label.partition(".")[0]
    return FINITE if kind in ("cancel", "fault") else kind if kind == "step" else None
