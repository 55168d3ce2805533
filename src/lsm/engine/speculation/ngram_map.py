"""`ngram-map-k` and `ngram-map-k4v`: as `ngram-simple`, and what was guessed in vain is guessed shorter the next time.  Pure.

k takes what followed the latest place.  k4v looks at all places, and guesses only where one continuation stands out among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import NO_GUESS, Ask
from lsm.engine.speculation.history import occurrences

MAX_CONTINUATIONS = 4  # that are told apart; the first ones in the text
LEAD = 2  # so many times as often as all the others together

Key = tuple[bytes, bytes]  # what stood there, and what followed it (k: nothing, since only the place counts)


@dataclass(slots=True)
class _Memory:
    """Of one slot.  `lengths`: how much of a guess was right the last time; `last`: the guess that is being verified."""

    lengths: dict[Key, int] = field(default_factory=dict)
    last: Key | None = None


def leading(tokens: Tokens, found: NDArray[np.intp], size_n: int, size_m: int) -> Tokens:
    """The continuation of `size_m` tokens that follows these places at least LEAD times as often as the others, or none."""
    counts: dict[bytes, int] = {}
    for start in found + size_n:
        value = tokens[start : start + size_m].tobytes()
        if value in counts or len(counts) < MAX_CONTINUATIONS:
            counts[value] = counts.get(value, 0) + 1
    best = max(counts, key=lambda value: counts[value])
    others = sum(counts.values()) - counts[best]
    return np.frombuffer(best, np.int32) if counts[best] >= LEAD * others else NO_GUESS


class NgramMap:
    """`drafter.Drafter`."""

    def __init__(self, size_n: int, size_m: int, min_hits: int, *, by_value: bool) -> None:
        self._size_n, self._size_m, self._min_hits, self._by_value = size_n, size_m, min_hits, by_value
        self._memories: dict[int, _Memory] = {}

    @property
    def n_max(self) -> int:
        return self._size_m

    def begin(self, slot: int) -> None:
        self._memories[slot] = _Memory()

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        return {ask.slot: self._draft(self._memories.setdefault(ask.slot, _Memory()), ask.tokens) for ask in asks}

    def _draft(self, memory: _Memory, tokens: Tokens) -> Tokens:
        memory.last = None
        n_before, n, m = len(tokens) - 1, self._size_n, self._size_m
        if n_before < 2 * n + m:
            return NO_GUESS
        found = occurrences(tokens, tokens[-n:], 1, n_before - n - m)  # what follows must be there whole
        if len(found) < self._min_hits:
            return NO_GUESS
        guess = leading(tokens, found, n, m) if self._by_value else tokens[found[-1] + n : found[-1] + n + m]
        if not len(guess):
            return NO_GUESS
        memory.last = tokens[-n:].tobytes(), guess.tobytes() if self._by_value else b""
        return guess[: memory.lengths.get(memory.last, m)]

    def accepted(self, slot: int, n: int) -> None:
        memory = self._memories[slot]
        if memory.last is not None:
            memory.lengths[memory.last] = n
