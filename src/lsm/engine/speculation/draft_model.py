"""`draft-simple`: a smaller model of the same vocabulary guesses.

Its memory follows the text by comparing: before it guesses, what it holds of a slot is cut to what the slot's tokens begin with, and the
rest is decoded.  So whatever happened to the slot (a shift, another prompt, refused guesses), it is never ahead of it and never beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lsm.engine.prefix import Tokens, common_prefix
from lsm.engine.speculation.drafter import NO_GUESS, Ask
from lsm.errors import LsmError

log = logging.getLogger("lsm.engine")


@dataclass(frozen=True, slots=True)
class Guess:
    """The token that the draft model takes to be next, and how likely it is among those that it considers at all."""

    token: int
    probability: float


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Tokens of one slot to be decoded, the first at position `pos`; `guess`: after the last of them a guess is wanted."""

    slot: int
    pos: int
    tokens: Tokens
    guess: bool


class DraftDecoder(Protocol):
    """The draft model's memory, one sequence for each slot, and the way through it."""

    @property
    def n_batch(self) -> int:
        """Most rows in one call."""
        ...

    @property
    def n_vocab(self) -> int:
        """Tokens that it knows."""
        ...

    def decode(self, rows: Sequence[Rows]) -> Sequence[Guess] | None:
        """The guesses, in order.  None: there is no room for these rows; nothing was decoded.  `LsmError`: nobody knows what was."""
        ...

    def forget(self, slot: int, start: int) -> None:
        """What it holds of the slot from this position on."""
        ...


class DraftModel:
    """`drafter.Drafter`.

    n_max, n_min: most tokens of a draft, and fewest of one that is used.  p_min: a guess that is less likely ends the draft.
    """

    def __init__(self, decoder: DraftDecoder, n_max: int, n_min: int = 0, p_min: float = 0.0) -> None:
        self._decoder = decoder
        self._n_max, self._n_min, self._p_min = n_max, n_min, p_min
        self._held: dict[int, Tokens] = {}  # by slot: what the memory holds

    @property
    def n_max(self) -> int:
        return self._n_max

    def begin(self, slot: int) -> None:
        """Nothing: what is held is compared with what is asked about."""

    def accepted(self, slot: int, n: int) -> None:
        """Likewise."""

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        asks = [ask for ask in asks if ask.is_text and ask.tokens.max() < self._decoder.n_vocab]
        try:
            return self._draft(asks) if asks else {}
        except LsmError as error:
            log.warning("the draft model guesses nothing: %s", error.message)
            for slot in list(self._held):
                self._forget(slot, 0)
            return {}

    def _draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        for ask in asks:
            self._forget(ask.slot, common_prefix(self._of(ask.slot), ask.tokens[:-1]))
        rows = self._missing(asks)
        drafts: dict[int, list[int]] = {}
        n_max = {ask.slot: min(self._n_max, ask.n_max) for ask in asks}
        while rows:
            guesses = self._decode(rows, keep={ask.slot for ask in asks})
            going_on = []
            for row, guess in zip([row for row in rows if row.guess], guesses, strict=True):
                draft = drafts.setdefault(row.slot, [])
                if guess.probability < self._p_min:
                    continue
                draft.append(guess.token)
                if len(draft) < n_max[row.slot]:
                    going_on.append(Rows(row.slot, row.pos + len(row.tokens), np.array([guess.token], np.int32), guess=True))
            rows = going_on
        return {slot: np.array(draft, np.int32) if len(draft) >= self._n_min else NO_GUESS for slot, draft in drafts.items()}

    def _missing(self, asks: Sequence[Ask]) -> list[Rows]:
        """What is to be decoded before the first guess, as much as a batch has room for: whose rest is longer waits for its guesses."""
        rows: list[Rows] = []
        room = self._decoder.n_batch
        for i, ask in enumerate(asks):
            held = len(self._of(ask.slot))
            tokens = ask.tokens[held : held + room - (len(asks) - 1 - i)]  # a row for each of the others
            rows.append(Rows(ask.slot, held, tokens, guess=held + len(tokens) == len(ask.tokens) and ask.n_max > 0))
            room -= len(tokens)
        return rows

    def _decode(self, rows: Sequence[Rows], keep: set[int]) -> Sequence[Guess]:
        """Slots that are not in `keep` make room, if there is none."""
        guesses = self._decoder.decode(rows)
        if guesses is None:
            for slot in set(self._held) - keep:
                self._forget(slot, 0)
            guesses = self._decoder.decode(rows)
        if guesses is None:
            raise LsmError("its context is full")
        for row in rows:
            self._held[row.slot] = np.concatenate([self._of(row.slot), row.tokens])
        return guesses

    def _of(self, slot: int) -> Tokens:
        return self._held.get(slot, NO_GUESS)

    def _forget(self, slot: int, start: int) -> None:
        if start < len(self._of(slot)):
            self._decoder.forget(slot, start)
            self._held[slot] = self._held[slot][:start]
