"""What came of a soak: one table, and whether all is well."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.soak.book import KINDS


@dataclass(frozen=True)
class Report:
    """`deaths`: how many servers were killed in which state of the token machine.  `trace`: what its checks looked at.

    `violations`: (one of KINDS, the story).
    """

    seed: int
    servers: int
    seconds: float
    handoffs: int
    counts: Mapping[str, int]
    deaths: Mapping[str, int]
    looks: int
    trace: Sequence[str]
    durations_ms: Sequence[float]
    slowest_s: float
    violations: Sequence[tuple[str, str]]

    @property
    def failed(self) -> bool:
        return bool(self.violations)

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "handoffs", f"{self.handoffs} in {self.seconds:.0f} s"
        for what, count in sorted(self.counts.items()):
            yield what, str(count)
        yield "killed while", ", ".join(f"{state} {count}" for state, count in sorted(self.deaths.items())) or "-"
        found = Counter(kind for kind, _ in self.violations)
        for kind in KINDS:
            yield kind, str(found[kind])
        yield "looks of the witness", str(self.looks)
        for seen in self.trace:
            yield "trace", seen
        yield "handoff, undisturbed", spread(self.durations_ms)
        yield "slowest answer", f"{self.slowest_s:.1f} s"

    def __str__(self) -> str:
        rows = list(self.rows())
        width = max(len(name) for name, _ in rows)
        lines = [f"soak of {self.servers} servers, seed {self.seed}", *(f"  {name:{width}}  {value}" for name, value in rows)]
        lines += [f"  VIOLATION  {kind}: {story}" for kind, story in self.violations]
        return "\n".join(lines)


def spread(values_ms: Sequence[float]) -> str:
    """Median and 95th percentile."""
    if not values_ms:
        return "none"
    ordered = sorted(values_ms)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    return f"median {statistics.median(ordered):.1f} ms, p95 {p95:.1f} ms ({len(ordered)} of them)"
