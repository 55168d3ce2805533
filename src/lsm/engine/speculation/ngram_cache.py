"""`ngram-cache`: how often which token followed the last one to four, in this text and in the texts of two files.  Pure.

What the text itself says goes first, then the dynamic file, then the static one, which also has a say in the choice of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import Ask
from lsm.speculating import N_CACHE_DRAFT

SIZES = (1, 2, 3, 4)
STATIC_SIZE = 2
# By the number of tokens that a count is for: how often they must have been seen, and the percentage of the one that is guessed.
LAX = ((2, 66), (2, 50), (1, 50), (1, 50))
STRICT = ((4, 75), (3, 66), (2, 66), (2, 66))
STATIC_WEIGHT = 100  # of a count of the static file beside one for tokens that it does not have

Counts = dict[int, int]
Cache = dict[tuple[int, ...], Counts]


def count(cache: Cache, tokens: Sequence[int], start: int) -> None:
    """The tokens from `start` on, each after the one to four before it."""
    for i in range(start, len(tokens)):
        for size in SIZES:
            if i >= size:
                counts = cache.setdefault(tuple(tokens[i - size : i]), {})
                counts[tokens[i]] = counts.get(tokens[i], 0) + 1


def choose(cache: Cache, tokens: Sequence[int], static: Counts, thresholds: Sequence[tuple[int, int]]) -> int | None:
    """The token that follows the most of these tokens for which the counts are clear enough."""
    for size in reversed(SIZES):
        counts = cache.get(tuple(tokens[-size:])) if len(tokens) >= size else None
        if not counts:
            continue
        best = max(counts, key=lambda token: counts[token] * STATIC_WEIGHT * static[token] if token in static else counts[token])
        n_min, percent_min = thresholds[size - 1]
        total = sum(counts.values())
        if total >= n_min and 100 * counts[best] >= percent_min * total:
            return best
    return None


def choose_static(counts: Counts) -> int | None:
    best, total = max(counts, key=lambda token: counts[token], default=None), sum(counts.values())
    n_min, percent_min = LAX[STATIC_SIZE - 1]
    return best if best is not None and total >= n_min and 100 * counts[best] >= percent_min * total else None


class NgramCache:
    """`drafter.Drafter`.  `dynamic`, `static`: of the files."""

    n_max = N_CACHE_DRAFT

    def __init__(self, dynamic: Cache, static: Cache) -> None:
        self._dynamic, self._static = dynamic, static
        self._seen: dict[int, tuple[Cache, int]] = {}  # by slot: the counts, and of how many tokens

    def begin(self, slot: int) -> None:
        self._seen[slot] = {}, 0

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        return {ask.slot: self._draft(ask) for ask in asks}

    def _draft(self, ask: Ask) -> Tokens:
        cache, n_counted = self._seen.get(ask.slot, ({}, 0))
        first = max(0, n_counted - max(SIZES))
        tokens: list[int] = ask.tokens[first:].tolist()
        count(cache, tokens, n_counted - first)
        self._seen[ask.slot] = cache, len(ask.tokens)
        n_before = len(tokens)
        while len(tokens) - n_before < N_CACHE_DRAFT and (token := self._next(cache, tokens)) is not None:
            tokens.append(token)
        return np.array(tokens[n_before:], np.int32)

    def _next(self, cache: Cache, tokens: Sequence[int]) -> int | None:
        if len(tokens) < STATIC_SIZE:
            return None
        static = self._static.get(tuple(tokens[-STATIC_SIZE:]), {})
        token = choose(cache, tokens, static, LAX)
        if token is None:
            token = choose(self._dynamic, tokens, static, STRICT)
        return choose_static(static) if token is None else token

    def accepted(self, slot: int, n: int) -> None:
        """It learns from the text alone."""
