"""`lsm verify`: one line for each check of a trace, and the story of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from lsm.machines.diagram import label
from lsm.machines.replay import untaken
from lsm.verify import Limits, Record, read_traces, tell, verify
from lsm.verify.checks import replayed


def report(files: Sequence[Path], min_hold_ms: int, quantum_ms: int, coverage: bool) -> tuple[list[str], bool]:
    """The lines to show, and whether every check holds.  Raises `TraceError`: a file cannot be read as a trace."""
    trace = read_traces(files)
    lines = list(trace.torn)
    for verdict in verify(trace.records, Limits(min_hold_ms, quantum_ms)):
        lines.append(f"{'FAILS' if verdict.story else 'holds'}  {verdict.check:<9} {verdict.seen}")
        if verdict.story is not None:
            return [*lines, "", *tell(verdict.story)], False
    return [*lines, *(_coverage(trace.records) if coverage else ())], True


def _coverage(records: Sequence[Record]) -> Iterator[str]:
    missed = untaken(replayed(records)[0].edges)
    yield ""
    yield f"never taken here: {len(missed)} edges"
    yield from (f"  {machine}: {edge.source} --> {edge.target}: {label(edge)}" for machine, edge in missed)
