"""What must hold for one model's owner, in every state and on every fair run."""

from __future__ import annotations

from lsm.arena.victims import Ask
from specs.explore import Predicate
from specs.fairness import FINITE
from specs.worlds.owner_state import ALL, BATCHES, COMPUTE, HOLDS, MOVES, WEIGHTS, Owner

MESSAGES = 12  # more in the inbox at once would mean that machines talk in circles


def _batch_may_run(owner: Owner) -> bool:
    return owner.running and not owner.jobs and any(0 < left <= BATCHES for left in owner.clients)


INVARIANTS: dict[str, Predicate[Owner]] = {
    "no event is refused": lambda o: not o.refused,
    "memory on the device only with the token": lambda o: not o.device & (WEIGHTS | COMPUTE) or o.locked,
    "the token's lock is held exactly in its states": lambda o: o.locked == (o.token in HOLDS),
    "a batch runs only with everything on the device": lambda o: not _batch_may_run(o) or o.device == ALL,
    "demand is the number of those who wait": lambda o: (
        o.demand == sum(left > 0 for left in o.clients) + (o.load in ("queued", "loading", "aborting"))
    ),
    "the engine runs only when awake": lambda o: not (o.running and not o.jobs) or o.token in ("awake", "draining"),
    "few messages are under way": lambda o: len(o.inbox) <= MESSAGES,
}

# Under a budget the ledger keeps what the token keeps without one.
IN_TOKENS_PLACE: dict[str, Predicate[Owner]] = {
    "memory on the device is in the ledger": lambda o: not o.device & ~o.charged,
    "the token is held only to move memory": lambda o: o.locked == (o.token in MOVES or (o.token == "sleeping" and o.locked)),
}
OF_THE_TOKEN = ("memory on the device only with the token", "the token's lock is held exactly in its states")
BUDGET_INVARIANTS = {name: holds for name, holds in INVARIANTS.items() if name not in OF_THE_TOKEN} | IN_TOKENS_PLACE

GOALS: dict[str, Predicate[Owner]] = {
    "the model is awake": lambda o: o.sleep == "awake" and o.load == "ready" and o.token == "awake" and not o.jobs,
    "the device is free and nobody waits": lambda o: o.token == "asleep" and not o.inbox and not o.jobs and not o.demand,
}

# Nobody is in one of these for ever.
PASSING: dict[str, Predicate[Owner]] = {
    "a client that waits": lambda o: o.clients[0] > 0,
    "a load that waits for the token": lambda o: o.load == "queued",
    "a load under way": lambda o: o.load in ("loading", "aborting"),
    "an unload": lambda o: o.load in ("unloading", "failing"),
    "falling asleep": lambda o: o.sleep == "falling_asleep",
}
BUDGET_PASSING = PASSING | {"everything is asked for, and something is there": lambda o: o.asked == Ask.ALL and o.charged > 0}


def group(label: str) -> str | None:
    """Who is obliged to take a step, for weak fairness.

    Nobody is obliged to come, to want the device, or to let the idle time pass; calls, cancels and faults come finitely often.
    """
    kind, _, rest = label.partition(".")
    match kind:
        case "cancel" | "call" | "wake" | "fault" | "ask":
            return FINITE
        case "handle":
            return FINITE if label.endswith(" patient") else "owner"  # patience ends
        case "line" if rest == "no_room":
            return None
        case "engine" | "line" | "ring":
            return kind
        case "batch" | "timer" if rest != "idle":
            return label
        case "look" if rest in ("False", "asked"):
            return "look"
    return None
