"""What happened in a soak, written down by many threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

STRANDED = "stranded"
WRONG = "wrong tokens"
ERROR = "errors"
DOUBLE = "double residency"
ALONE = "resident without the token"
TRACE = "mistakes in the trace"
KINDS = (STRANDED, WRONG, ERROR, DOUBLE, ALONE, TRACE)


@dataclass
class Book:
    """`over` is set by the first violation: what comes after a fault says nothing, and the trace should end near it."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[str, str]] = field(default_factory=list)  # (one of KINDS, the story)
    disturbed: list[tuple[int, int]] = field(default_factory=list)  # CLOCK_MONOTONIC, ns: from, to
    slowest_s: float = 0.0  # of all requests that were answered
    over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def took(self, seconds: float) -> None:
        with self._lock:
            self.slowest_s = max(self.slowest_s, seconds)

    def violation(self, kind: str, story: str) -> None:
        with self._lock:
            self.violations.append((kind, story))
        self.over.set()

    @contextmanager
    def disturbing(self) -> Iterator[None]:
        """While this is open, how long a handoff takes says nothing about the servers."""
        start = time.monotonic_ns()
        try:
            yield
        finally:
            with self._lock:
                self.disturbed.append((start, time.monotonic_ns()))
