"""Which slot a prompt goes to, and how much of it is there already.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many tokens both begin with.  Both have shape (n,), int32."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


@dataclass(frozen=True, slots=True)
class Candidate:
    """An idle slot: the tokens in its cache, and a number that grows with each use (0: never used)."""

    id: int
    tokens: Tokens
    last_used: int


def choose_slot(prompt: Tokens, idle: Sequence[Candidate], id_slot: int = -1, similarity_min: float = 0.1) -> int | None:
    """The id of the slot for `prompt`, shape (n,), n > 0; None while there is none for it.

    The slot that was asked for; else the one with the longest common prefix, if that is more than `similarity_min` of the prompt
    (0 switches this off); else the one that was not used for the longest time, empty ones first.
    """
    if id_slot >= 0:
        return next((slot.id for slot in idle if slot.id == id_slot), None)
    if not idle:
        return None
    if similarity_min > 0:
        n_common, best = max(((common_prefix(slot.tokens, prompt), slot) for slot in idle), key=lambda pair: pair[0])
        if n_common > similarity_min * len(prompt):
            return best.id
    return min(idle, key=lambda slot: (slot.last_used, slot.id)).id


def reusable_prefix(n_common: int, n_prompt: int, pos_min: int, n_swa: int) -> int:
    """How many of the `n_common` cached tokens can stay, given that the last prompt token must be decoded so that there are logits.

    With a sliding window of `n_swa` tokens (0: none) the layers that slide forget: a token at position p sees back to p - n_swa + 1, and
    `pos_min` is the oldest position still there.  What was forgotten cannot be had back, so then everything is decoded again.
    A conversation that only grows never meets this.  One whose end is replaced meets it when more is taken back than the window has
    spare cells (n_ubatch of them, and what the other slots do not use).
    """
    n = min(n_common, n_prompt - 1)
    if n_swa > 0 and pos_min > max(0, n - n_swa + 1):
        return 0
    return n
