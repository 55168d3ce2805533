"""Mistakes planted in the real code for a simulated run; each must be caught within so many seeds.  They prove that the judge is awake."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from lsm.arena.flock import try_exclusive
from lsm.arena.line import Line
from lsm.machines import SLEEP, TOKEN
from lsm.machines.table import Machine
from lsm.machines.token import LEAVE
from lsm.runtime import line_effects, owner
from lsm.runtime.inbox import Inbox
from lsm.runtime.line_effects import LineEffects
from lsm.runtime.owner import MAP_ATTEMPTS, Owner
from specs.planting import at


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    about: str  # requirement or property
    seeds: int  # one of so many shows it
    words: str  # in what the judge says
    plant: Callable[[], contextlib.AbstractContextManager[Any]]
    first: int = 0  # where to begin: what only few seeds show is not searched for in all others in every test


def table(machine: Machine) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Owners are made with this table instead."""
    return lambda: patch.object(owner, machine.name.upper(), machine)


def code(where: object, name: str, instead: object) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    return lambda: patch.object(where, name, instead)


@contextlib.contextmanager
def _patience_without_need() -> Iterator[None]:
    samplers = Owner._samplers

    def patient(model: Owner) -> dict[str, Callable[[], bool]]:
        return {**samplers(model), "patient": lambda: not model._hopeless() and model._map_attempts + 1 < MAP_ATTEMPTS}

    with patch.object(Owner, "_samplers", patient):
        yield


async def _load_after_stop(model: Owner) -> None:
    model._post("load", "load")
    await model._until(lambda: model.state("token") not in owner.BEFORE_THE_LINE or model.state("load") not in ("unloaded", "queued"))


def _probe_is_kept(line: Line) -> bool:
    """The probe does not give back what it won."""
    return not try_exclusive(line._probe_fd)


PLANTED = (
    Planted("the token goes before the memory", "S10 P12", 1, "while nobody holds the token", table(
        at(TOKEN, "draining", "drained", do=("device_unmap", "token_drop")))),
    Planted("a cancel keeps its share of want.lock", "S1 P13", 3, "keeps", table(
        at(TOKEN, "waiting", "cancel", do=(*LEAVE, "tell_cancelled")))),
    Planted("the quantum is never over", "S1 P5", 3, "the quantum is", code(LineEffects, "quantum_over", lambda _: False)),
    Planted("no second look when the one ahead is gone", "S1", 10, "overtakes", table(
        at(TOKEN, "waiting", "ahead_gone", target="taking", do=("token_try",))), first=40),
    Planted("the ticket is locked after the door is open", "S1", 1, "ticket_lock without a ticket in the door", table(
        at(TOKEN, "joining", "made", do=("door_open", "ticket_lock", "bell_ring", "look_ahead")))),
    Planted("the token is let go while a map is tried again", "S10 P12", 3, "is retrying while nobody holds the token", table(
        at(TOKEN, "waking", "map_failed", "patient", do=("token_drop", "backoff_start")))),
    Planted("demand that came while falling asleep is forgotten", "S2 P4", 3, "not within", table(
        at(SLEEP, "falling_asleep", "device_left", "demanded", target="asleep", do=()))),
    Planted("a failed wake tells nobody", "S2 P2", 10, "somebody still waits", table(at(SLEEP, "waking", "device_left", do=()))),
    Planted("answers of the line queue behind the inbox", "S1 P6", 10, "asleep and keeps door.lock", code(Inbox, "answer", Inbox.post)),
    Planted("a lost ring, and nobody looks now and then", "S1", 20, "and does not get it", code(
        line_effects, "SLOW_CHECK_S", 1e6), first=15),
    Planted("the probe of want.lock is kept", "S1", 2, "asleep and keeps want.lock exclusive", code(Line, "wanted", _probe_is_kept)),
    Planted("who is not needed any more tries again", "P12", 10, "nobody needs it", _patience_without_need),
    Planted("a load follows a stop", "P2", 10, "stop", code(Owner, "load", _load_after_stop), first=115),
)  # fmt: skip
