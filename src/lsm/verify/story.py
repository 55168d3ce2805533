"""What is wrong with a trace, as a story: the edges that led there, oldest first, and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from lsm.verify.record import Record

LENGTH = 8  # edges that are shown
LIFE_CYCLE = ("token", "sleep", "load", "residency")


@dataclass(frozen=True, slots=True)
class Story:
    what: str
    records: tuple[Record, ...]  # the last one is where it was noticed

    @property
    def where(self) -> str:
        return self.records[-1].where


def of_subject(records: Sequence[Record], end: int, what: str) -> Story:
    """The edges of one machine up to the one with number `end`."""
    return Story(what, _last(records, end, lambda record: record.key == records[end].key))


def of_owners(records: Sequence[Record], end: int, what: str, owners: Collection[tuple[int, int, str]]) -> Story:
    """What the machines of some models did up to the edge with number `end`."""
    return Story(what, _last(records, end, lambda record: record.owner in owners and record.machine in LIFE_CYCLE))


def _last(records: Sequence[Record], end: int, belongs: Callable[[Record], bool]) -> tuple[Record, ...]:
    found = [records[end]]
    for number in range(end - 1, -1, -1):
        if belongs(records[number]):
            found.append(records[number])
            if len(found) == LENGTH:
                break
    return tuple(reversed(found))


def tell(story: Story) -> Iterator[str]:
    """The lines of the story; times are seconds before its end."""
    end_ns = story.records[-1].t_ns
    for record in story.records:
        facts = "".join(f" {name if truth else '!' + name}" for name, truth in record.facts.items())
        yield (
            f"{(record.t_ns - end_ns) / 1e9:+10.4f} s  process {record.pid}  {record.subject}  {record.machine}: "
            f"{record.source} --{record.event}{facts}--> {record.target}  ({record.where})"
        )
    yield story.what
