"""The one source of chance of a run."""

from __future__ import annotations

import random

TICKS_PER_S = 16  # a power of two: sums of ticks are exact, so things do happen at the same instant


class Chance(random.Random):
    def lasting(self, shortest_s: float, longest_s: float) -> float:
        """How long something takes; in whole ticks mostly, because faults like coincidences."""
        return self._often_whole(self.uniform(shortest_s, longest_s), longest_s)

    def pause(self, mean_s: float) -> float:
        """Until the next time; any length, likewise."""
        return self._often_whole(self.expovariate(1 / mean_s), float("inf"))

    def _often_whole(self, seconds: float, longest_s: float) -> float:
        ticks = max(1, round(seconds * TICKS_PER_S)) / TICKS_PER_S
        return ticks if ticks <= longest_s and self.random() < 0.7 else seconds
