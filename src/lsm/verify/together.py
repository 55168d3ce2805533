"""Traces of several processes, merged: what the line promises to everybody.

What each process has is followed from its own edges.  A process may die between any two of its lines, and nobody records that: whoever
is in the way of a rule counts as dead, unless a later edge of the same model shows that it lived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lsm.verify.record import Record
from lsm.verify.story import Story, of_owners

MOVING_IN = ("arriving", "entering")  # states of RESIDENCY in which memory is taken
ON_DEVICE = ("arriving", "resident", "leaving", "entering")  # states of RESIDENCY with weights in device memory
WORK = {("slot", "assign"), ("slot", "batch"), ("slot", "sampled"), ("request", "start"), ("request", "first_token")}

Key = tuple[int, int, str]


@dataclass(slots=True)
class Model:
    """One model of one process, as far as its edges have told."""

    token: str = "asleep"
    residency: str = "absent"
    sleep: str = "asleep"
    lined: bool = False  # has a ticket
    holds: bool = False  # has the token
    shares: bool = False  # is on the device by the ledger, under a budget
    joined: int = -1  # number of the edge that made its ticket: tickets are made in the door, so this is their order
    turns: int = 0


@dataclass(slots=True)
class Together:
    records: Sequence[Record]
    models: dict[Key, Model] = field(default_factory=dict)
    last: dict[Key, int] = field(default_factory=dict)  # number of each model's last edge
    spoiled: set[int] = field(default_factory=set)  # numbers of edges that made a ticket which could not be locked

    def __post_init__(self) -> None:
        self.last = {record.owner: number for number, record in enumerate(self.records)}
        made: dict[Key, int] = {}
        for number, record in enumerate(self.records):
            if record.machine == "token":
                if record.event == "line_failed" and record.owner in made:
                    self.spoiled.add(made[record.owner])
                made.pop(record.owner, None)
                if record.event == "made":
                    made[record.owner] = number

    @property
    def turns(self) -> int:
        return sum(model.turns for model in self.models.values())

    def first_mistake(self) -> Story | None:
        for number, record in enumerate(self.records):
            model = self.models.setdefault(record.owner, Model())
            if record.machine in ("token", "residency", "sleep"):
                setattr(model, record.machine, record.target)
            wrong, others = self._look(number, record, model)
            if wrong:
                return of_owners(self.records, number, wrong, {record.owner, *others})
        return None

    def _look(self, number: int, record: Record, model: Model) -> tuple[str, list[Key]]:
        if record.machine == "token":
            self._follow(number, record, model)
        if record.machine == "token" and record.event == "token_won":
            return self._turn(number, record, model)
        may_stay = model.holds or (model.shares and model.residency not in MOVING_IN)
        if record.machine in ("token", "residency") and model.residency in ON_DEVICE and not may_stay:
            return f"{_name(record)} has device memory ({model.residency}), but not the token ({model.token})", []
        if (record.machine, record.event) in WORK and (model.sleep not in ("awake", "falling_asleep") or model.residency != "resident"):
            return f"{_name(record)} decodes while {model.sleep}, with its memory {model.residency}", []
        return "", []

    def _follow(self, number: int, record: Record, model: Model) -> None:
        """What the model has of the line and of the device, after an edge of its TOKEN."""
        if record.event == "made":
            model.joined, model.lined = number, True
        if record.event == "token_won":
            model.holds, model.turns = True, model.turns + 1
        if record.event == "mapped":
            model.shares = record.facts.get("budgeted", False)
        model.holds = model.holds and "token_drop" not in record.effects
        model.lined = model.lined and "ticket_close" not in record.effects
        model.shares = model.shares and record.target != "asleep"

    def _turn(self, number: int, record: Record, model: Model) -> tuple[str, list[Key]]:
        """Somebody has won the token: nobody else has it, and nobody who joined earlier still waits."""
        for key, other in self.models.items():
            if key == record.owner or not (other.lined or other.holds) or self.last[key] < number:
                continue
            if other.holds:
                return f"{_name(record)} got the token while {key[2]!r} of process {key[0]} had it ({other.token})", [key]
            if other.joined < model.joined and other.joined not in self.spoiled:
                return f"{_name(record)} got the token although {key[2]!r} of process {key[0]} joined earlier and still waits", [key]
        return "", []


def _name(record: Record) -> str:
    return f"{record.owner[2]!r} of process {record.pid}"
