"""Writes traces as processes would that follow the tables, at times of one's choosing."""

from __future__ import annotations

from dataclasses import replace

from lsm.machines import MACHINES
from lsm.machines.table import step
from lsm.verify import Record

MS = 1_000_000
ALONE = {"demanded": True}
EXCLUSIVE = {"token_won": {"alone": True}, "mapped": {"budgeted": False}}  # no budget is given


class Scribe:
    """`records` has every edge of every process, in the order in which they were written down."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._states: dict[tuple[int, int, str, str], str] = {}

    def take(self, t_ms: float, pid: int, machine: str, event: str, subject: str = "a", run: int = 1, **facts: bool) -> None:
        facts = {**EXCLUSIVE.get(event, {}), **facts}
        key = (pid, run, machine, subject)
        source = self._states.get(key, MACHINES[machine].initial)
        target, effects = step(MACHINES[machine], source, event, facts)
        self._states[key] = target
        where = f"trace:{len(self.records) + 1}"
        self.records.append(Record(int(t_ms * MS), pid, run, machine, subject, source, event, facts, target, effects, where))

    def tokens(self, t_ms: float, pid: int, *events: str, run: int = 1) -> None:
        """Events of TOKEN, a millisecond apart."""
        for place, event in enumerate(events):
            self.take(t_ms + place, pid, "token", event, run=run)

    def join(self, t_ms: float, pid: int, run: int = 1) -> None:
        """Ends at `t_ms` + 2, with a ticket."""
        self.tokens(t_ms, pid, "need", "door_won", "made", run=run)

    def win(self, t_ms: float, pid: int, run: int = 1) -> None:
        """Ends at `t_ms` + 2, awake."""
        self.tokens(t_ms, pid, "first", "token_won", "mapped", run=run)

    def look(self, t_ms: float, pid: int, wanted: bool = True, due: bool = True, rested: bool = True) -> None:
        self.take(t_ms, pid, "token", "look", rested=rested, wanted=wanted, due=due)

    def leave(self, t_ms: float, pid: int) -> None:
        self.tokens(t_ms, pid, "drained", "unmapped")

    def spoil(self, number: int, **changes: object) -> None:
        self.records[number] = replace(self.records[number], **changes)  # type: ignore[arg-type]

    def sorted(self) -> list[Record]:
        return sorted(self.records, key=lambda record: record.t_ns)


def handed_on() -> Scribe:
    """Process 1 serves, process 2 waits behind it and follows."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.join(20, 2)
    scribe.look(112, 1)
    scribe.leave(113, 1)
    scribe.win(115, 2)
    return scribe
