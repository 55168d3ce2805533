"""Judges the log of many processes on one line: was it first come, first served, and was there ever more than one holder?

The stamps lean to the safe side: a ticket is stamped in the door, so tickets are in order; an end is stamped before anything is
given back; a turn is stamped after the token was won. So a right line is never blamed, whatever the scheduler does between a
step and its stamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """What one process did: `ticket`, `turn`, `leave`, `kill`, `stop`. A process that was started again has a new `life`."""

    stamp_ns: int
    life: int
    what: str


@dataclass(frozen=True)
class Verdict:
    counts: Counter[str]
    overtakings: int
    double_holders: int

    @property
    def right(self) -> bool:
        return not self.overtakings and not self.double_holders


def read(log: str) -> list[Row]:
    """The rows of a log, by time. A last row that was cut off by a kill is left out."""
    rows = (row.split() for row in log.split("\n")[:-1])
    return sorted(Row(int(stamp), int(life), what) for stamp, life, what in rows)


def judge(rows: Iterable[Row]) -> Verdict:
    born: dict[int, int] = {}  # The stamp of each live ticket, by its owner's life.
    holder: int | None = None
    dead: set[int] = set()
    counts: Counter[str] = Counter()
    overtakings = double_holders = 0
    for stamp_ns, life, what in rows:
        if life in dead:
            continue  # It was killed from outside and did one more step before that arrived.
        counts[what] += 1
        if what == "ticket":
            born[life] = stamp_ns
        elif what == "turn":
            double_holders += holder is not None
            overtakings += sum(other_ns < born[life] for other_ns in born.values())
            holder = life
        elif what in ("leave", "kill"):
            born.pop(life, None)
            if what == "kill":
                dead.add(life)
            if holder == life:
                holder = None
    return Verdict(counts, overtakings, double_holders)
