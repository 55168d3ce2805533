"""One batch: a token of each generating slot first, then as much of the prompts as fits.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lsm.engine.prefix import Tokens


class Next(NamedTuple):
    """The token that a slot in the middle of its answer would like to have decoded; it gives logits."""

    slot: int
    pos: int
    token: int


class Work(NamedTuple):
    """What one slot would like to have decoded: `tokens`, shape (n,), int32, the first at position `pos`."""

    slot: int
    pos: int
    tokens: Tokens
    want_logits: bool  # of the last token


class Share(NamedTuple):
    """A slot's part of the batch: rows `start` to `stop`; `output` if the last of them gives logits."""

    slot: int
    start: int
    stop: int
    output: bool


class Batch:
    """Arrays of `n_batch` rows, filled anew for each step.

    tokens, pos, seq: int32; logits: int8, 1 where the row gives logits.
    """

    def __init__(self, n_batch: int) -> None:
        self.tokens: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.pos: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.seq: NDArray[np.int32] = np.zeros(n_batch, np.int32)
        self.logits: NDArray[np.int8] = np.zeros(n_batch, np.int8)
        self.shares: list[Share] = []
        self.n = 0
        self._rows = np.arange(n_batch, dtype=np.int32)

    def fill(self, generating: Sequence[Next], prompts: Iterable[Work]) -> None:
        """Take the work in the order given; what does not fit waits for the next batch.  `generating` must fit: one row for each slot."""
        n = self.n = len(generating)
        assert n <= len(self.tokens), "a batch is smaller than the number of slots"
        if n:  # all at once: numpy costs by the call
            self.seq[:n], self.pos[:n], self.tokens[:n] = np.array(generating, np.int32).T
            self.logits[:n] = 1
        self.shares = [Share(one.slot, row, row + 1, True) for row, one in enumerate(generating)]
        for work in prompts:
            if self.n == len(self.tokens):
                break
            self._add(work)

    def _add(self, work: Work) -> None:
        start = self.n
        count = min(len(work.tokens), len(self.tokens) - start)
        stop = start + count
        output = work.want_logits and count == len(work.tokens)
        self.tokens[start:stop] = work.tokens[:count]
        np.add(self._rows[:count], work.pos, out=self.pos[start:stop])
        self.seq[start:stop] = work.slot
        self.logits[start:stop] = 0
        self.logits[stop - 1] = output
        self.shares.append(Share(work.slot, start, stop, output))
        self.n = stop

    def shares_within(self, start: int, stop: int) -> list[Share]:
        """The shares of rows `start` to `stop`, cut to them; a share that is cut before its end gives no output."""
        if start == 0 and stop == self.n:
            return list(self.shares)
        return [
            Share(share.slot, max(share.start, start), min(share.stop, stop), share.output and share.stop <= stop)
            for share in self.shares
            if share.start < stop and share.stop > start
        ]
