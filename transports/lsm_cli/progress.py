"""How far a long piece of work is: one moving line on a terminal, a line for each tenth elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

BAR_CELLS = 28


class Progress:
    """`show(done_bytes)` may be called as often as one likes; `close()` ends the line."""

    def __init__(self, label: str, total_bytes: int, out: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._label, self._total_bytes, self._out, self._now = label, total_bytes, out, now
        self._moving = out.isatty()
        self._started_s = now()
        self._tenths_told = 0

    def show(self, done_bytes: int) -> None:
        done_bytes = min(done_bytes, self._total_bytes)
        if self._moving:
            self._out.write(f"\r\x1b[K{self._line(done_bytes)}")
            self._out.flush()
            return
        tenths = 10 * done_bytes // self._total_bytes
        if tenths > self._tenths_told:
            self._tenths_told = tenths
            self._out.write(f"{self._label}: {_size(done_bytes)} of {_size(self._total_bytes)} ({10 * tenths} %)\n")
            self._out.flush()

    def close(self) -> None:
        if self._moving:
            self._out.write("\n")
            self._out.flush()

    def _line(self, done_bytes: int) -> str:
        cells = BAR_CELLS * done_bytes // self._total_bytes
        rate = done_bytes / max(self._now() - self._started_s, 1e-3)
        bar = "#" * cells + "." * (BAR_CELLS - cells)
        return f"{self._label} [{bar}] {_size(done_bytes)} of {_size(self._total_bytes)}, {_size(rate)}/s"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f} MB"
