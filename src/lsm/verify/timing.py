"""What a trace says of real time: the minimum hold, and when a generation may be interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lsm.verify.record import Record
from lsm.verify.story import Story, of_owners

MS = 1_000_000
SLACK_MS = 1000  # a yield that is due comes with the next turn of the loop; a busy machine, or a debugger, may be slow to give it one
LIVE = ("prefilling", "generating")

Key = tuple[int, int, str]


@dataclass(slots=True)
class Clock:
    """One model's times, in ns."""

    mapped: int = 0
    wanted: int | None = None  # the first look that saw somebody wait, since the last one that did not
    edge: int = 0  # its last life-cycle edge: the owner has looked at everything since then
    running: dict[str, int] = field(default_factory=dict)  # request -> when it got its slot


@dataclass(slots=True)
class Timing:
    records: Sequence[Record]
    min_hold_ms: int
    quantum_ms: int  # 0: never in the middle of a generation
    yields: int = 0
    shortest_ms: float | None = None  # from `mapped` to a yield that somebody else caused
    latest_ms: float = 0.0  # that a yield came after its quantum
    clocks: dict[Key, Clock] = field(default_factory=dict)

    def first_mistake(self) -> Story | None:
        for number, record in enumerate(self.records):
            clock = self.clocks.setdefault(record.owner, Clock())
            wrong = self._look(record, clock)
            if wrong:
                return of_owners(self.records, number, wrong, {record.owner})
        return None

    def _look(self, record: Record, clock: Clock) -> str:
        if record.machine == "request":
            if record.target in LIVE:
                clock.running.setdefault(record.subject, record.t_ns)
            else:
                clock.running.pop(record.subject, None)
        wrong = self._token(record, clock) if record.machine == "token" else ""
        if record.machine not in ("request", "slot"):
            clock.edge = record.t_ns
        return wrong

    def _token(self, record: Record, clock: Clock) -> str:
        if record.event == "mapped":
            clock.mapped, clock.wanted = record.t_ns, None
        late = self._overdue(record, clock)
        if late or record.event != "look":
            return late
        if record.target == "draining":
            return self._yield(record, clock)
        if record.facts.get("rested"):
            clock.wanted = (clock.wanted or record.t_ns) if record.facts.get("wanted") else None
        return ""

    def _yield(self, record: Record, clock: Clock) -> str:
        self.yields += 1
        held_ms = (record.t_ns - clock.mapped) / MS
        self.shortest_ms = held_ms if self.shortest_ms is None else min(self.shortest_ms, held_ms)
        if held_ms < self.min_hold_ms:
            return f"{record.subject!r} gave the device away after {held_ms:.1f} ms; the minimum hold is {self.min_hold_ms} ms"
        interrupted = [subject for subject, start in clock.running.items() if start < clock.edge]
        waited_ms = 0.0 if clock.wanted is None else (record.t_ns - clock.wanted) / MS
        if interrupted and not self.quantum_ms:
            return f"{record.subject!r} gave the device away in the middle of {interrupted[0]!r}, although the quantum is 0"
        if interrupted and waited_ms < self.quantum_ms:
            return f"{interrupted[0]!r} was interrupted {waited_ms:.1f} ms after somebody waited; the quantum is {self.quantum_ms} ms"
        return ""

    def _overdue(self, record: Record, clock: Clock) -> str:
        """Somebody has waited for longer than the quantum, and the holder still serves."""
        if record.source != "awake" or clock.wanted is None or not self.quantum_ms:
            return ""
        late_ms = (record.t_ns - clock.wanted) / MS - self.quantum_ms
        self.latest_ms = max(self.latest_ms, late_ms)
        if late_ms > SLACK_MS:
            return f"{record.subject!r} kept the device for {late_ms:.0f} ms after the quantum of somebody who waited"
        return ""
