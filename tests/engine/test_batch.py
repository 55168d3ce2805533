"""A batch: one token of each generating slot first, then the prompts."""

from __future__ import annotations

import numpy as np
import pytest

from lsm.engine.batch import Batch, Next, Share, Work


def prompt(slot: int, n: int, pos: int = 0, want_logits: bool = True) -> Work:
    return Work(slot, pos, np.arange(100 * slot, 100 * slot + n, dtype=np.int32), want_logits)


def token(slot: int, pos: int) -> Next:
    return Next(slot, pos, 1000 + slot)


def test_generating_slots_come_first_and_prompts_fill_the_rest() -> None:
    """D.2 batch: generating slots first, then prompts within n_batch."""
    batch = Batch(8)
    batch.fill([token(2, 40), token(0, 7)], [prompt(1, 4, pos=3), prompt(3, 5)])
    assert batch.n == 8
    assert batch.tokens.tolist() == [1002, 1000, 100, 101, 102, 103, 300, 301]
    assert batch.pos.tolist() == [40, 7, 3, 4, 5, 6, 0, 1]
    assert batch.seq.tolist() == [2, 0, 1, 1, 1, 1, 3, 3]


def test_only_the_last_token_of_a_whole_prompt_gives_logits() -> None:
    """D.2 batch: logits of the last prompt token only, and not of a part."""
    batch = Batch(8)
    batch.fill([token(2, 40)], [prompt(1, 4), prompt(3, 5)])
    assert batch.logits[: batch.n].tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    assert batch.shares == [Share(2, 0, 1, True), Share(1, 1, 5, True), Share(3, 5, 8, False)]


def test_a_prompt_that_only_fills_the_cache_gives_no_logits() -> None:
    """B.2 n_predict 0: only fill the cache."""
    batch = Batch(8)
    batch.fill([], [prompt(0, 3, want_logits=False)])
    assert batch.logits[: batch.n].tolist() == [0, 0, 0]


def test_a_batch_forgets_the_one_before() -> None:
    """D.2 batch: filled anew each step."""
    batch = Batch(4)
    batch.fill([], [prompt(0, 4)])
    batch.fill([token(1, 9)], [])
    assert (batch.n, batch.shares, batch.logits[:1].tolist()) == (1, [Share(1, 0, 1, True)], [1])


def test_a_part_of_a_batch_has_parts_of_shares() -> None:
    """D.2 decode failures: half of a batch is a batch."""
    batch = Batch(8)
    batch.fill([token(0, 7)], [prompt(1, 5)])
    assert batch.shares_within(0, 3) == [Share(0, 0, 1, True), Share(1, 1, 3, False)]
    assert batch.shares_within(3, 6) == [Share(1, 3, 6, True)]


def test_more_slots_than_rows_is_a_mistake() -> None:
    """D.2 batch: each generating slot has its row."""
    with pytest.raises(AssertionError, match="smaller than the number of slots"):
        Batch(1).fill([token(0, 1), token(1, 1)], [])
