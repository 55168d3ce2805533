"""One batch: a token of each generating slot first, with guesses behind it, then as much of the prompts as fits.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
    n_draft: int = 0  # so many of the tokens, at the end, are guesses: logits are wanted of the one before them and of each of them


class Share(NamedTuple):
    """A slot's part of the batch: rows `start` to `stop`; `output` if the last of them gives logits.

    The last `n_drafted` rows are guesses; they give logits, and so does the row before them.
    """

    slot: int
    start: int
    stop: int
    output: bool
    n_drafted: int = 0

    @property
    def rows(self) -> range:
        """Those with logits."""
        return range(self.stop - 1 - self.n_drafted, self.stop) if self.output else range(0)


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

    def fill(self, generating: Sequence[Next], prompts: Sequence[Work], guessing: Sequence[Work] = ()) -> None:
        """Take the work in the order given, prompts last; what does not fit waits for the next batch.  Of each slot that generates, with
        guesses behind its token (`guessing`) or without, one row must fit.

        Guesses, and what was lost with them, leave a row for everybody behind them.
        """
        n = self.n = len(generating)
        n_behind = len(guessing) + len(prompts)
        assert n + len(guessing) <= len(self.tokens), "a batch is smaller than the number of slots"
        if n:  # all at once: numpy costs by the call
            self.seq[:n], self.pos[:n], self.tokens[:n] = np.array(generating, np.int32).T
            self.logits[:n] = 1
        self.shares = [Share(one.slot, row, row + 1, True) for row, one in enumerate(generating)]
        for work in guessing:
            n_behind -= 1
            self._add(work, max(1, len(self.tokens) - self.n - n_behind))
        for work in prompts:
            if self.n == len(self.tokens):
                break
            self._add(work, len(self.tokens) - self.n)

    def _add(self, work: Work, room: int) -> None:
        start = self.n
        count = min(len(work.tokens), room)
        stop = start + count
        n_certain = len(work.tokens) - work.n_draft
        output = work.want_logits and count >= n_certain
        n_drafted = count - n_certain if output else 0
        self.tokens[start:stop] = work.tokens[:count]
        np.add(self._rows[:count], work.pos, out=self.pos[start:stop])
        self.seq[start:stop] = work.slot
        self.logits[start:stop] = 0
        self.logits[stop - 1 - n_drafted : stop] = output
        self.shares.append(Share(work.slot, start, stop, output, n_drafted))
        self.n = stop

    def drop_drafts(self) -> bool:
        """Leave out all guesses; whether there were any."""
        n_before = self.n
        kept = [row for share in self.shares for row in range(share.start, share.stop - share.n_drafted)]
        for array in (self.tokens, self.pos, self.seq, self.logits):
            array[: len(kept)] = array[kept]
        start = 0
        for i, share in enumerate(self.shares):
            stop = start + share.stop - share.start - share.n_drafted
            self.shares[i] = Share(share.slot, start, stop, share.output)
            start = stop
        self.n = start
        return self.n < n_before

    def shares_within(self, start: int, stop: int) -> list[Share]:
        """The shares of rows `start` to `stop`, cut to them; a share that is cut before its end gives no output; it has no guesses."""
        if start == 0 and stop == self.n:
            return list(self.shares)
        return [
            Share(share.slot, max(share.start, start), min(share.stop, stop), share.output and share.stop <= stop)
            for share in self.shares
            if share.start < stop and share.stop > start
        ]
