"""The device changing hands, as the trace of the run tells it: how often, and how long it takes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

INTERVAL_S = 0.01

Edge = dict[str, Any]


@dataclass
class Counter:
    """Counts how often a process gets the token after another one."""

    count: int = 0
    _last_pid: int = 0

    def add(self, edge: Edge) -> None:
        if edge["event"] == "token_won":
            self.count += self._last_pid not in (0, edge["pid"])
            self._last_pid = edge["pid"]


class Handoffs:
    """Follows the trace while it is written, from a thread of its own."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._counter = Counter()
        self._more = threading.Condition()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="handoffs")

    @property
    def count(self) -> int:
        return self._counter.count

    def wait_for_more(self, n: int, *ends: threading.Event) -> bool:
        """Until there are n more than now.  False: one of `ends` was set first."""
        goal = self.count + n
        with self._more:
            while self.count < goal:
                if any(end.is_set() for end in ends):
                    return False
                self._more.wait(0.1)
        return not any(end.is_set() for end in ends)

    def __enter__(self) -> Handoffs:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        rest = b""
        with self._trace.open("rb") as file:
            while not self._end.wait(INTERVAL_S):
                *lines, rest = (rest + file.read()).split(b"\n")
                for line in lines:
                    if b'"machine":"token"' in line:
                        self._counter.add(json.loads(line))
                with self._more:
                    self._more.notify_all()


def token_edges(trace: Path) -> list[Edge]:
    """In the order of time: the lines of several processes may have been written in another one."""
    edges = [json.loads(line) for line in trace.read_bytes().splitlines() if b'"machine":"token"' in line]
    return sorted(edges, key=lambda edge: int(edge["t_ns"]))


def durations_ms(edges: Iterable[Edge], disturbed: Sequence[tuple[int, int]]) -> list[float]:
    """From the moment a holder begins to yield until another process is awake, where nothing from outside came in between."""
    found, start, giver = [], 0, 0
    for edge in edges:
        if (edge["from"], edge["event"], edge["to"]) == ("awake", "look", "draining"):
            start, giver = edge["t_ns"], edge["pid"]
        elif edge["event"] == "mapped":
            end = edge["t_ns"]
            if start and edge["pid"] != giver and not any(a < end and b > start for a, b in disturbed):
                found.append((end - start) / 1e6)
            start = 0
    return found


def states_at_death(edges: Iterable[Edge], killed: Iterable[int]) -> dict[int, str]:
    """The state of the token machine in which each killed process was last seen."""
    last = {edge["pid"]: str(edge["to"]) for edge in edges}
    return {pid: last.get(pid, "asleep") for pid in killed}
