"""The checks of a trace: alone, together, in time.  The fourth, coverage, is a list: which edges were taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsm.machines import MACHINES
from lsm.machines.replay import Replay
from lsm.verify.record import Record
from lsm.verify.story import Story, of_subject
from lsm.verify.timing import Timing
from lsm.verify.together import Together


@dataclass(frozen=True, slots=True)
class Limits:
    """How the servers were started."""

    min_hold_ms: int = 100
    quantum_ms: int = 2000


DEFAULTS = Limits()


@dataclass(frozen=True, slots=True)
class Verdict:
    check: str
    seen: str  # what was looked at
    story: Story | None = None  # what is wrong


def verify(records: Sequence[Record], limits: Limits = DEFAULTS) -> Iterator[Verdict]:
    """One verdict for each check, up to the first that fails: later ones would only tell of its consequences."""
    for check in (_alone, _together, _in_time):
        verdict = check(records, limits)
        yield verdict
        if verdict.story is not None:
            return


def replayed(records: Sequence[Record]) -> tuple[Replay, Story | None]:
    """Each subject's edges held against its table; the first mistake ends it."""
    replay = Replay()
    for number, record in enumerate(records):
        if wrong := replay.take(record.key, record):
            return replay, of_subject(records, number, f"{record.machine} of {record.subject!r}, process {record.pid}: {wrong}")
    return replay, None


def _alone(records: Sequence[Record], limits: Limits) -> Verdict:
    replay, story = replayed(records)
    processes = len({(record.pid, record.run) for record in records})
    total = sum(len(machine.edges) for machine in MACHINES.values())
    seen = (
        f"{_many(replay.count, 'edge')} of {_many(len(replay.states), 'subject')} in {_many(processes, 'process', 'processes')} "
        f"follow from the tables; {len(replay.edges)} of {total} different ones"
    )
    return Verdict("alone", seen, story)


def _together(records: Sequence[Record], limits: Limits) -> Verdict:
    together = Together(records)
    story = together.first_mistake()
    return Verdict("together", f"{_many(together.turns, 'turn')} of {_many(len(together.models), 'model')}: one holder, in order", story)


def _in_time(records: Sequence[Record], limits: Limits) -> Verdict:
    timing = Timing(records, limits.min_hold_ms, limits.quantum_ms)
    story = timing.first_mistake()
    shortest = "" if timing.shortest_ms is None else f", none before {timing.shortest_ms:.0f} ms; latest {timing.latest_ms:.0f} ms overdue"
    return Verdict("time", f"{_many(timing.yields, 'yield')} to somebody who waited{shortest}", story)


def _many(n: int, one: str, more: str = "") -> str:
    return f"{n} {one if n == 1 else more or one + 's'}"
