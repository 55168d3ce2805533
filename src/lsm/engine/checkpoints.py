"""Snapshots of what a memory cannot give back by itself: when to take one, which to keep, which to go back to (S11).  Pure.

Recurrent states and sliding windows only move forward: after token 100 there is no state of token 90 any more.  A snapshot of the state of
a prefix is one.  It needs the rest of the memory (the layers that see everything) to hold the same prefix, so it lives and dies with it.

`n_tokens` says all about a snapshot: it has what decoding needs to go on at that position, and is taken when exactly so much has been
decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

State = NDArray[np.uint8]
STATE_HEADER_BYTES = 8  # of every state: a number of this build, and the sequence it was made of, which is not looked at

END_OFFSET = 4  # a template may replace so many tokens at the end of a prompt by the first ones of its next turn


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """`state`: (n,) uint8, the parts of the memory that cannot lose single tokens.  `task`: the request that made it."""

    n_tokens: int
    task: str
    state: State


Checkpoints = tuple[Checkpoint, ...]  # n_tokens grows strictly


@dataclass(frozen=True, slots=True)
class Spacing:
    """n_max: snapshots of one slot; 0: none.  min_step: tokens between two of them, as far as there is a choice."""

    n_max: int
    min_step: int
    n_batch: int
    n_ubatch: int


def within(kept: Checkpoints, n_tokens: int) -> Checkpoints:
    """Those whose prefix is part of the first `n_tokens`."""
    return tuple(entry for entry in kept if entry.n_tokens <= n_tokens)


def latest(kept: Checkpoints, n_tokens: int) -> Checkpoint | None:
    """The one with the most tokens among those `within`."""
    return next((entry for entry in reversed(kept) if entry.n_tokens <= n_tokens), None)


def with_room(kept: Checkpoints, n_tokens: int, task: str, spacing: Spacing) -> Checkpoints:
    """What stays beside a new one of `n_tokens`, made by `task`.

    First goes the one it replaces, so that no other one leaves for it; then, while the list is full, those of earlier requests that are
    too close to the one before them; then the oldest.
    """
    kept = _spaced(tuple(entry for entry in kept if entry.n_tokens != n_tokens), task, spacing)
    return kept[max(0, len(kept) + 1 - spacing.n_max) :]


def _spaced(kept: Checkpoints, task: str, spacing: Spacing) -> Checkpoints:
    stay: list[Checkpoint] = []
    n_dropped = 0
    for entry in kept:
        is_full = len(kept) - n_dropped + 1 >= spacing.n_max
        is_close = bool(stay) and entry.n_tokens <= stay[-1].n_tokens + spacing.min_step
        if is_full and is_close and entry.task != task:
            n_dropped += 1
        else:
            stay.append(entry)
    return tuple(stay)


def with_new(kept: Checkpoints, new: Checkpoint) -> Checkpoints:
    """In order."""
    return tuple(sorted((*kept, new), key=lambda entry: entry.n_tokens))


def next_stop(n: int, n_prompt: int, user_starts: Sequence[int], kept: Checkpoints, spacing: Spacing) -> int:
    """Where a batch that begins with token `n` of a prompt has to end at the latest, so that a snapshot can be taken there.

    `user_starts`: positions where a message of the user begins, growing.
    """
    ends = [n_prompt - min(spacing.n_batch, offset) for offset in (END_OFFSET + spacing.n_ubatch, END_OFFSET)]
    starts = [start for start in user_starts if start == user_starts[-1] or _is_far(start, kept, spacing)]
    return min((stop for stop in (*ends, *starts) if n < stop < n_prompt), default=n_prompt)


def is_due(n: int, n_rows: int, n_prompt: int, user_starts: Sequence[int], kept: Checkpoints, spacing: Spacing) -> bool:
    """Whether to take a snapshot before a batch decodes `n_rows` tokens of a prompt, from token `n` on."""
    if n == 0 or spacing.n_max == 0:
        return False
    near_end = n + n_rows + spacing.n_ubatch > n_prompt
    if near_end or (user_starts and n == user_starts[-1]):
        return True
    return n in user_starts and _is_far(n, kept, spacing)


def _is_far(n: int, kept: Checkpoints, spacing: Spacing) -> bool:
    return not kept or n > kept[-1].n_tokens + spacing.min_step
