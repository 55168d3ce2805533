"""One line of a trace: one edge that some process took.

    field of the trace | in the tables (`lsm.machines.table`) | in the program
    -------------------+--------------------------------------+-------------------------------------------------------------------
    t_ns               | (order of the steps)                 | CLOCK_MONOTONIC after the edge was taken, before its effects are
    pid, run           | process i of specs/worlds/token.py   | os.getpid(), and when its recorder was opened: one set of models
    machine            | Machine.name                         | Executor.machine.name
    subject            | (instance)                           | ALIAS of an owner's machines; ALIAS/ID of a request; ALIAS/slot N
    from, to           | Edge.source, Edge.target             | Executor.state before and after
    event              | Edge.event                           | lsm.runtime.inbox.Event.event; for requests and slots what `fire` got
    facts              | Edge.when, those that were asked     | Owner._sample, when the event is delivered
    do                 | Edge.do                              | what Owner._perform, or the Scheduler, is about to do

The stamp lies between the edge and its effects.  So a lock is held longer than the trace says, never shorter, and two turns that overlap
in a trace did overlap.  Events that a machine ignores leave no line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsm.errors import LsmError
from lsm.machines import MACHINES


class TraceError(LsmError):
    """A trace cannot be read, or says what no table knows.  The message names file and line."""


@dataclass(frozen=True, slots=True)
class Record:
    t_ns: int
    pid: int
    run: int
    machine: str
    subject: str
    source: str
    event: str
    facts: Mapping[str, bool]
    target: str
    effects: tuple[str, ...]
    where: str = ""  # FILE:LINE

    @property
    def key(self) -> tuple[int, int, str, str]:
        """Whose machine it is."""
        return self.pid, self.run, self.machine, self.subject

    @property
    def owner(self) -> tuple[int, int, str]:
        """The model it belongs to: process, run, alias."""
        alias = self.subject.rpartition("/")[0] if self.machine in ("request", "slot") else self.subject
        return self.pid, self.run, alias


FIELDS: dict[str, type] = {
    "t_ns": int, "pid": int, "run": int, "machine": str, "subject": str, "from": str, "event": str, "facts": dict, "to": str, "do": list,
}  # fmt: skip


def parse(line: bytes, where: str) -> Record:
    """Raises `TraceError`: not JSON, a field that is missing or of another type, a name that the tables do not have."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}: not a line of JSON ({error})") from None
    if not isinstance(found, dict):
        raise TraceError(f"{where}: not a JSON object")
    for name, kind in FIELDS.items():
        if type(found.get(name)) is not kind:
            raise TraceError(f"{where}: field {name!r} is {found.get(name)!r}, which is no {kind.__name__}")
    _check_names(found, where)
    return Record(
        found["t_ns"], found["pid"], found["run"], found["machine"], found["subject"],
        found["from"], found["event"], found["facts"], found["to"], tuple(map(str, found["do"])), where,
    )  # fmt: skip


def _check_names(found: Mapping[str, Any], where: str) -> None:
    machine = MACHINES.get(found["machine"])
    if machine is None:
        raise TraceError(f"{where}: unknown machine {found['machine']!r}; this version has: {', '.join(MACHINES)}")
    for kind, name, known in (
        ("state", found["from"], machine.states),
        ("event", found["event"], machine.events),
        ("state", found["to"], machine.states),
        *(("fact", name, machine.facts) for name in found["facts"]),
        *(("effect", name, machine.effects) for name in map(str, found["do"])),
    ):
        if name not in known:
            raise TraceError(f"{where}: machine {machine.name!r} has no {kind} {name!r}")
    if not all(isinstance(truth, bool) for truth in found["facts"].values()):
        raise TraceError(f"{where}: a fact is neither true nor false: {found['facts']}")
