"""Prompts of text and media.  Pure.

A prompt is a row of token ids.  A media chunk (an image, a piece of sound) stands in it as one placeholder for each of its embeddings: a
negative number that follows from its content, so that two prompts with the same media begin alike, and those with others do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lsm.engine.prefix import Tokens

FIRST_PLACEHOLDER = -2  # llama.cpp takes -1 for "no token"
N_PLACEHOLDERS = 2**30


@dataclass(frozen=True, slots=True)
class Span:
    """Where a media chunk stands: rows `start` to `stop` of the prompt.  `n_pos`: positions that it takes (fewer than rows with M-RoPE).

    `id` follows from the content, and from which part of it the chunk is.  `is_moment`: all rows stand at the first of its positions.
    `saved`: what a file of the slot has of it.
    """

    start: int
    n_tokens: int
    n_pos: int
    id: str
    is_moment: bool = False
    saved: bytes = field(default=b"", compare=False, repr=False)

    @property
    def stop(self) -> int:
        return self.start + self.n_tokens


def placeholders(id: str, n_tokens: int) -> Tokens:
    """Shape (n_tokens,), int32, negative: what stands in a prompt for the chunk of this id."""
    digest = int.from_bytes(hashlib.sha256(id.encode()).digest()[:8], "little")
    return np.full(n_tokens, FIRST_PLACEHOLDER - digest % N_PLACEHOLDERS, np.int32)


def whole_prefix(n: int, one: Sequence[Span], other: Sequence[Span]) -> int:
    """Of two prompts with `n` rows in common, how many of these end no chunk half way, and stand for the same media."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.start >= n and theirs.start >= n:
            return n
        if mine != theirs or mine.stop > n:
            return min(n, mine.start, theirs.start)
    longer = one if len(one) > len(other) else other
    rest = longer[min(len(one), len(other)) :]
    return min(n, rest[0].start) if rest else n


def position(n: int, spans: Sequence[Span]) -> int:
    """The position of row `n`, which is not inside a chunk."""
    return n - sum(span.n_tokens - span.n_pos for span in spans if span.stop <= n)


def positions(n: int, spans: Sequence[Span]) -> NDArray[np.int64]:
    """Shape (n,): where each of the first `n` rows stands, which end no chunk half way."""
    steps = np.ones(n, np.int64)  # from each row to the next
    for span in spans:
        steps[span.start : span.stop] = not span.is_moment
        steps[span.stop - 1] += span.n_pos - steps[span.start : span.stop].sum()
    return np.cumsum(steps) - steps


def text_end(n: int, n_prompt: int, spans: Sequence[Span]) -> int:
    """Where the text that goes on at row `n` ends: at the next chunk, or with the prompt."""
    return next((span.start for span in spans if span.start >= n), n_prompt)


def message_starts(prompt: Tokens, marker: Tokens) -> tuple[int, ...]:
    """Where the tokens of `marker` stand in the prompt; nowhere if there are none."""
    n = len(prompt) - len(marker) + 1
    if not len(marker) or n <= 0:
        return ()
    found = np.ones(n, np.bool_)
    for i, token in enumerate(marker):
        found &= prompt[i : i + n] == token
    return tuple(np.flatnonzero(found).tolist())


def text_tokens(prompt: Tokens) -> Tokens:
    """The prompt without its media."""
    return prompt[prompt >= 0]
