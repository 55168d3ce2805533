"""What must hold for an encoder and the residency of its model, in every state and on every fair run."""

from __future__ import annotations

from specs.explore import Predicate
from specs.fairness import FINITE
from specs.worlds.encoder import COMPUTE, ENCODER, KV, NOBODY, WEIGHTS, Model, Scenario, used


def invariants(scenario: Scenario) -> dict[str, Predicate[Model]]:
    return {
        "no event is refused": lambda m: "is refused" not in m.wrong,
        "the peak is within the budget": lambda m: used(m.device, scenario) <= scenario.budget,
        "media are encoded only with the encoder on the device": lambda m: "without the encoder" not in m.wrong,
        "a batch runs only with everything on the device": lambda m: "all of its memory" not in m.wrong,
        "the KV cache and the compute buffers stay while the model is awake": lambda m: (
            m.residency not in ("resident", "hollow") or m.device & (KV | COMPUTE) == KV | COMPUTE
        ),
        "an encoder on demand is on the device only for media": lambda m: (
            not scenario.on_demand or not m.device & ENCODER or m.batch != NOBODY or m.residency in ("arriving", "hollow")
        ),
        "the encoder comes for media alone": lambda m: m.batch == NOBODY or m.wants[m.batch] != "text",
        "a model that is away has left the device": lambda m: (
            m.residency not in ("away", "absent") or not m.device & (WEIGHTS | COMPUTE | ENCODER)
        ),
        "an awake model has its weights, or gives them up for media, or stands still": lambda m: (
            m.residency != "resident" or bool(m.device & WEIGHTS) or m.batch != NOBODY
        ),
    }


def goals(scenario: Scenario) -> dict[str, Predicate[Model]]:
    """An encoder that does not even fit alone encodes nothing; everything else goes on."""
    fits = used(KV | COMPUTE | ENCODER, scenario) <= scenario.budget
    return GOALS | (ENCODED if fits else {})


ENCODED: dict[str, Predicate[Model]] = {
    "an image is encoded and waits to be decoded": lambda m: m.wants[0] == "encoded" and m.residency == "resident" and not m.todo,
}
GOALS: dict[str, Predicate[Model]] = {
    "the model is awake and idle": lambda m: m.residency == "resident" and not any(m.wants) and not m.todo and not m.asked,
    "the device is free": lambda m: not m.device and not any(m.wants),
}

PASSING: dict[str, Predicate[Model]] = {
    "a request": lambda m: bool(m.wants[0]),
    "a window of the encoder": lambda m: m.batch != NOBODY,
    "a leave": lambda m: m.asked,
}


def group(label: str) -> str | None:
    """Nobody has to come, and who asks for sleep, cancels, unloads, and what fails, does so finitely often; the engine goes on."""
    kind = label.partition(".")[0]
    if kind in ("fault", "ask", "cancel", "unload"):
        return FINITE
    return kind if kind in ("engine", "load", "loaded", "wake", "leave", "encode", "decode") else None
