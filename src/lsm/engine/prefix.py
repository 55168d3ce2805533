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


def movable_chunks(cached: Tokens, prompt: Tokens, n_common: int, n_min: int) -> list[tuple[int, int, int]]:
    """(start in `cached`, start in `prompt`, length) of what follows the common prefix in both, in order, in chunks of `n_min` or more.

    Chunks follow each other without a gap in the prompt; what lies between them in the cache is left out.
    """
    chunks: list[tuple[int, int, int]] = []
    start, to = n_common, n_common
    while to + n_min <= len(prompt) and (start := _find(cached, prompt[to : to + n_min], start)) >= 0:
        n = common_prefix(cached[start:], prompt[to:])
        chunks.append((start, to, n))
        start, to = start + n, to + n
    return chunks


def _find(tokens: Tokens, wanted: Tokens, start: int) -> int:
    """Where `wanted` begins first in `tokens`, from `start` on; -1: nowhere."""
    begins = np.arange(start, len(tokens) - len(wanted) + 1)
    for i, token in enumerate(wanted):
        begins = begins[tokens[begins + i] == token]
    return int(begins[0]) if len(begins) else -1


def window_reaches(pos: int, pos_min: int, n_swa: int) -> bool:
    """Whether a sequence whose oldest position is `pos_min` can go on at `pos`.

    With a sliding window of `n_swa` tokens (0: none) the layers that slide forget by themselves: a token at position p sees back to
    p - n_swa + 1.  A conversation that only grows never asks.  One whose end is replaced meets a window that moved on too far when more is
    taken back than the window has spare cells (n_ubatch of them, and what the other slots do not use).
    """
    return n_swa == 0 or pos_min <= max(0, pos - n_swa + 1)
