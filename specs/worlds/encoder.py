"""An encoder that comes just in time, beside the residency of its model; two requests, each with text or with an image.

Each effect of the table `encoder` is a step, which may fail; between any two of them clients come and cancel, the model may be asked to
sleep, and the process may be killed.  What the engine thread does between two of its steps (load, leave, wake, unload) is one step here:
how these come apart is the world of the owner's affair.

Allocations succeed beyond the budget, too, so that a wrong order is seen as a peak, and not as a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lsm.machines import MACHINES
from lsm.machines.table import Machine, Refused, step

WEIGHTS, KV, COMPUTE, ENCODER = 1, 2, 4, 8  # classes of device memory, as bits
TEXT_CLASSES = WEIGHTS | KV | COMPUTE
SIZES = {WEIGHTS: 3, KV: 1, COMPUTE: 1}
NOBODY = -1
IDLE = ("absent", "host", "lost", "resident")  # states of ENCODER in which nothing is under way
TABLES = {name: MACHINES[name] for name in ("encoder", "residency")}
RELEASES = {"release_compute": COMPUTE, "release_encoder": ENCODER, "release_weights": WEIGHTS, "release_kv": KV}

# What is under way -> what it does to the device, and the events of its success and failure.
MOVES = {
    "release_weights": (0, WEIGHTS, "weights_left", "leave_failed"),
    "restore_weights": (WEIGHTS, 0, "weights_entered", "enter_failed"),
    "release_encoder": (0, ENCODER, "left", "leave_failed"),
    "restore_encoder": (ENCODER, 0, "entered", "enter_failed"),
    "open": (ENCODER, 0, "opened", "open_failed"),
    "run": (0, 0, "encoded", "encode_failed"),
}

Step = tuple[str, "Model"]


class Model(NamedTuple):
    encoder: str = "absent"
    residency: str = "absent"
    device: int = 0  # classes with memory on the device
    todo: str = ""  # an effect of ENCODER that is being performed
    wants: tuple[str, ...] = ("", "")  # of each client's request: text, media, or encoded media; nothing: there is none
    batch: int = NOBODY  # the request whose media are being encoded
    ending: tuple[bool, ...] = (False, False)  # cancelled or failed: heard when the window has closed
    asked: bool = False  # to leave, at the next boundary
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    on_demand: bool = True
    budget: int = 5  # KV, compute, and either the weights or the encoder
    evict_kv: bool = True
    encoder_size: int = 3
    mistake: str = ""  # of the world, not of a table: see specs/planted_encoder.py


def initial(scenario: Scenario) -> Model:
    return Model()


def used(device: int, scenario: Scenario) -> int:
    return sum(size for bit, size in SIZES.items() if device & bit) + (scenario.encoder_size if device & ENCODER else 0)


class World:
    """The steps, for some tables (mutants, perhaps) and some scenario."""

    def __init__(self, scenario: Scenario, tables: dict[str, Machine] | None = None) -> None:
        self.scenario = scenario
        self.tables = TABLES | (tables or {})
        self.step = step  # the coverage listens here

    def successors(self, model: Model) -> list[Step]:
        if model.wrong:
            return [("wrong", model)]
        return list(self._steps(model))

    def _steps(self, model: Model) -> Iterator[Step]:
        yield from self._clients(model)
        yield "fault.crash", Model()
        if model.todo:
            yield from self._window(model)
        else:
            yield from self._between(model)

    def _clients(self, model: Model) -> Iterator[Step]:
        for i, want in enumerate(model.wants):
            if not want:
                yield f"come.{i}", _with(model, i, "text")
                yield f"come.{i}", _with(model, i, "media")
            elif model.todo:
                yield f"cancel.{i}", _ending(model, i)
            else:
                yield f"cancel.{i}", _with(model, i, "")
        if model.residency == "resident":
            yield "ask", model._replace(asked=True)

    # ---- a window of the encoder

    def _window(self, model: Model) -> Iterator[Step]:
        taken, given, done, failed = MOVES[model.todo]
        if given == WEIGHTS and self.scenario.mistake == "the KV cache makes room, too":
            given |= KV
        if model.todo == "run" and not model.device & ENCODER:
            model = model._replace(wrong="media are encoded without the encoder")
        moved = model._replace(device=(model.device | taken) & ~given, todo="")
        if model.todo == "run":
            yield "engine.run", self._fire(_with(moved, model.batch, "encoded"), "encoder", done)
            together = moved._replace(wants=tuple("encoded" if want == "media" else want for want in moved.wants))
            yield "engine.run", self._fire(_with(together, model.batch, "encoded"), "encoder", done)
        else:
            yield f"engine.{model.todo}", self._fire(moved, "encoder", done)
        for why in ("room", "changed", "other") if model.todo == "restore_encoder" else ("room",):
            yield f"fault.{model.todo}", self._fire(model._replace(todo=""), "encoder", failed, why)

    # ---- what the engine thread does between two windows

    def _between(self, model: Model) -> Iterator[Step]:
        match model.residency:
            case "absent":
                begun = self._fire(model._replace(device=WEIGHTS), "residency", "enter")
                yield "load", self._fire(begun, "encoder", "arrive")
            case "arriving":
                yield from self._loaded(model)
            case "away":
                yield from self._woken(model)
        if model.residency in ("resident", "hollow", "away"):
            yield "unload", self._freed(model)
        may_run = model.residency == "resident"
        if self.scenario.mistake == "a batch runs while the weights are lost":
            may_run = model.residency in ("resident", "hollow")
        if model.residency in ("resident", "hollow") and model.asked:
            yield "leave", self._fire(self._fire(model, "residency", "leave"), "residency", "left")._replace(asked=False)
        if may_run and (not model.asked or model.residency == "hollow"):
            yield from self._served(model)

    def _freed(self, model: Model) -> Model:
        freed = self._fire(model._replace(device=0, wants=Model().wants, asked=False), "residency", "freed")
        return self._fire(freed, "encoder", "freed")

    def _loaded(self, model: Model) -> Iterator[Step]:
        failed = self._fire(self._fire(model._replace(device=0), "encoder", "freed"), "residency", "load_failed")
        if model.encoder == "absent":
            yield "engine.load_failed", failed
        else:
            yield "fault.load", failed
            yield "loaded", self._fire(model._replace(device=model.device | KV | COMPUTE), "residency", "loaded")

    def _woken(self, model: Model) -> Iterator[Step]:
        entering = self._fire(model, "residency", "enter")
        yield "wake", self._fire(self._fire(entering, "residency", "entered"), "encoder", "woken")
        yield "fault.wake", self._fire(entering._replace(device=model.device), "residency", "enter_failed")

    def _served(self, model: Model) -> Iterator[Step]:
        """The first request with media has them encoded; or a batch has something of all that need no encoder any more."""
        with_encoder = ("media", "text") if self.scenario.mistake == "a text brings the encoder in" else ("media",)
        first = next((i for i, want in enumerate(model.wants) if want in with_encoder), NOBODY)
        if first != NOBODY and model.encoder not in ("lost", "absent"):
            yield "encode", self._fire(model._replace(batch=first), "encoder", "encode")
        ready = tuple("" if want in ("text", "encoded") else want for want in model.wants)
        if ready != model.wants:
            whole = model.device & TEXT_CLASSES == TEXT_CLASSES
            yield "decode", model._replace(wants=ready) if whole else model._replace(wrong="a batch runs without all of its memory")

    # ---- the tables

    def _fire(self, model: Model, machine: str, event: str, why: str = "room") -> Model:
        facts = {
            "fits": self._fits(model.device),
            "fits_alone": self._fits(model.device & ~WEIGHTS),
            "for_room": why == "room",
            "changed": why == "changed",
            "on_demand": self.scenario.on_demand,
            "encoder_stays": not self.scenario.on_demand,
            "evict_kv": self.scenario.evict_kv,
        }
        try:
            target, effects = self.step(self.tables[machine], getattr(model, machine), event, facts)
        except Refused as refused:
            return model._replace(wrong=str(refused))
        model = model._replace(**{machine: target})  # type: ignore[arg-type]  # the field of that name is the machine's state
        for effect in effects:
            model = self._perform(model, machine, effect)
        if not model.todo and model.encoder in IDLE:  # the window has closed
            wants = tuple("" if ending else want for want, ending in zip(model.wants, model.ending, strict=True))
            model = model._replace(batch=NOBODY, wants=wants, ending=Model().ending)
        return model

    def _fits(self, device: int) -> bool:
        return used(device | ENCODER, self.scenario) <= self.scenario.budget

    def _perform(self, model: Model, machine: str, effect: str) -> Model:
        if machine == "encoder" and effect in MOVES:
            return model._replace(todo=effect)
        if effect in RELEASES and not (effect == "release_kv" and not self.scenario.evict_kv):
            return model._replace(device=model.device & ~RELEASES[effect])
        match effect:
            case "restore":
                return model._replace(device=model.device | TEXT_CLASSES)
            case "restore_with_encoder":
                return model._replace(device=model.device | TEXT_CLASSES | ENCODER)
            case "fail_media":
                return _ending(model, model.batch)
            case "report_lost":
                return self._fire(model, "residency", "weights_lost")
            case "report_changed":
                return self._freed(model)
            case "rest" if machine == "residency":
                return model._replace(asked=model.residency == "hollow")  # a model that is not there has left already
        return model


def _with(model: Model, i: int, want: str) -> Model:
    return model._replace(wants=(*model.wants[:i], want, *model.wants[i + 1 :]))


def _ending(model: Model, i: int) -> Model:
    return model._replace(ending=(*model.ending[:i], True, *model.ending[i + 1 :]))
