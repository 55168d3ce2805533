"""`ngram-simple`: what followed the latest tokens the last time they stood in the text comes next.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import NO_GUESS, Ask
from lsm.engine.speculation.history import occurrences


def draft_simple(tokens: Tokens, size_n: int, size_m: int, min_hits: int = 1) -> Tokens:
    """Up to `size_m` tokens that followed the latest earlier place at which the last `size_n` tokens stood, or none.

    None where the text is too short to hold both twice, where fewer than `size_n` tokens would be guessed, and where these tokens
    stood there fewer than `min_hits` times.  The very first place does not count.
    """
    n_before = len(tokens) - 1
    if n_before <= size_n + size_m + 1:
        return NO_GUESS
    found = occurrences(tokens, tokens[-size_n:], 1, n_before - size_n)
    if len(found) < min_hits:
        return NO_GUESS
    start = int(found[-1]) + size_n
    guess = tokens[start : min(start + size_m, n_before)]
    return guess if len(guess) >= size_n else NO_GUESS


@dataclass(frozen=True, slots=True)
class NgramSimple:
    """`drafter.Drafter`."""

    size_n: int
    size_m: int
    min_hits: int

    @property
    def n_max(self) -> int:
        return self.size_m

    def begin(self, slot: int) -> None:
        """It remembers nothing."""

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        return {ask.slot: draft_simple(ask.tokens, self.size_n, self.size_m, self.min_hits) for ask in asks}

    def accepted(self, slot: int, n: int) -> None:
        """Nor does it learn."""
