"""`ngram-mod`: one table for all slots from the hash of the last tokens to the token that followed them.  Pure.

Two rows of tokens with one hash overwrite each other: what is drafted then is wrong, and refused.  The hash is a polynomial modulo 2**64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import NO_GUESS, Ask

FACTOR = 6364136223846793005  # of Knuth's linear congruential generator (MMIX)
N_ENTRIES = 1 << 22
EMPTY = -1
MAX_FULL = 0.25  # beyond it too many overwrite each other, and the table begins anew
CHUNK = 32  # tokens that an answer grows by before they are put in
LOW_SHARE, N_LOW_MAX = 0.25, 5  # so little of so many drafts in a row was right: the table begins anew
MASK = 2**64 - 1


def hashes(tokens: Tokens, n: int) -> NDArray[np.uint64]:
    """Shape (len(tokens) - n + 1,): of each row of `n` tokens."""
    count = len(tokens) - n + 1
    wide = tokens.astype(np.uint64)
    result = np.zeros(count, np.uint64)
    for i in range(n):
        result = result * np.uint64(FACTOR) + wide[i : i + count]
    return result


class Table:
    def __init__(self, n: int, n_entries: int = N_ENTRIES) -> None:
        self.n = n
        self._n_entries = n_entries
        self._followers = np.full(n_entries, EMPTY, np.int32)
        self._leaving = pow(FACTOR, n, 1 << 64)

    @property
    def full(self) -> float:
        return float(np.count_nonzero(self._followers != EMPTY)) / self._n_entries

    def clear(self) -> None:
        self._followers.fill(EMPTY)

    def add(self, tokens: Tokens) -> None:
        """Each token that has `n` before it; of two with the same ones before, the later."""
        if len(tokens) > self.n:
            self._followers[hashes(tokens[:-1], self.n) % np.uint64(self._n_entries)] = tokens[self.n :]

    def follow(self, tokens: Tokens, n_max: int) -> list[int]:
        """Up to `n_max` tokens that follow the last `n` ones, each on the ones before it."""
        window: list[int] = tokens[-self.n :].tolist()
        value = int(hashes(tokens[-self.n :], self.n)[0])
        while len(window) - self.n < n_max and (token := int(self._followers[value % self._n_entries])) != EMPTY:
            value = (value * FACTOR + token - window[-self.n] * self._leaving) & MASK
            window.append(token)
        return window[self.n :]


@dataclass(slots=True)
class _Memory:
    """Of one slot: how many of its tokens are in the table, and how its drafts fared."""

    n_added: int = 0
    n_drafted: int = 0
    n_low: int = 0


class NgramMod:
    """`drafter.Drafter`."""

    def __init__(self, n_match: int, n_min: int, n_max: int, n_entries: int = N_ENTRIES) -> None:
        self._n_min, self._n_max = n_min, n_max
        self._table = Table(n_match, n_entries)
        self._memories: dict[int, _Memory] = {}

    @property
    def n_max(self) -> int:
        return self._n_max

    def begin(self, slot: int) -> None:
        self._memories[slot] = _Memory()
        if self._table.full > MAX_FULL:
            self._clear()

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        return {ask.slot: self._draft(self._memories.setdefault(ask.slot, _Memory()), ask.tokens) for ask in asks}

    def _draft(self, memory: _Memory, tokens: Tokens) -> Tokens:
        memory.n_drafted = 0
        before = tokens[:-1]
        if len(before) < self._table.n:
            return NO_GUESS
        if not memory.n_added or memory.n_added + CHUNK < len(before):
            self._table.add(before[max(0, memory.n_added - self._table.n) :])
            memory.n_added = len(before)
        guess = self._table.follow(tokens, self._n_max)
        if len(guess) < self._n_min:
            return NO_GUESS
        memory.n_drafted = len(guess)
        return np.array(guess, np.int32)

    def accepted(self, slot: int, n: int) -> None:
        memory = self._memories[slot]
        is_low = 0 < memory.n_drafted and n / memory.n_drafted < LOW_SHARE
        memory.n_low = memory.n_low + 1 if is_low else 0
        if memory.n_low >= N_LOW_MAX:
            self._clear()
            memory.n_low = 0

    def _clear(self) -> None:
        """What the slots have said so far is put in again when they are asked."""
        self._table.clear()
        for memory in self._memories.values():
            memory.n_added = 0
