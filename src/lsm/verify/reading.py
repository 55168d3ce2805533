"""Reads trace files of one arena, and puts all their edges into the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lsm.verify.record import Record, TraceError, parse


@dataclass(frozen=True, slots=True)
class Trace:
    """Edges of all files by time.  `torn`: a sentence for each file whose last line was cut off."""

    records: tuple[Record, ...]
    torn: tuple[str, ...] = ()


def read_traces(paths: Iterable[Path]) -> Trace:
    """Raises `TraceError`: a file cannot be read, a line is wrong, or there is no edge at all."""
    torn: list[str] = []
    records = [record for path in paths for record in _read(path, torn)]
    if not records:
        raise TraceError("the trace is empty: nothing was checked. Was LSM_TRACE set when the servers started, and did they do anything?")
    records.sort(key=lambda record: record.t_ns)  # stable: edges with one stamp stay in the order of their file
    return Trace(tuple(records), tuple(torn))


def _read(path: Path, torn: list[str]) -> Iterator[Record]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}:{number}"
                try:
                    yield parse(line, where)
                except TraceError:
                    if line.endswith(b"\n"):
                        raise
                    torn.append(f"{where}: the last line is torn (a process was killed while it wrote, or the disk was full): left out")
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
