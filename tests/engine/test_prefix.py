"""Which slot, and how much of the prompt is already there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.prefix import Candidate, choose_slot, common_prefix, window_reaches
from lsm.engine.prompt import message_starts

Ints = list[int]


def tokens(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_common_prefix_is_the_longest(a: Ints, b: Ints) -> None:
    """D.2 longest common prefix."""
    n = common_prefix(np.array(a, np.int32), np.array(b, np.int32))
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


def test_the_slot_asked_for_is_taken_or_waited_for() -> None:
    """D.2 slot choice: explicit id_slot."""
    idle = [Candidate(0, tokens(1, 2, 3), 5), Candidate(2, tokens(), 0)]
    assert choose_slot(tokens(1, 2, 3), idle, id_slot=2) == 2
    assert choose_slot(tokens(1, 2, 3), idle, id_slot=1) is None


def test_the_longest_common_prefix_wins() -> None:
    """D.2 slot choice: longest common prefix."""
    idle = [Candidate(0, tokens(1, 2), 1), Candidate(1, tokens(1, 2, 3, 9), 2), Candidate(2, tokens(), 0)]
    assert choose_slot(tokens(1, 2, 3, 4), idle) == 1


def test_a_prefix_of_a_tenth_of_the_prompt_is_too_little() -> None:
    """D.2 slot choice: similarity must exceed 0.1 of the prompt, else least recently used."""
    prompt = np.arange(20, dtype=np.int32)
    similar_2 = Candidate(0, np.array([0, 1, 77], np.int32), 9)
    similar_3 = Candidate(0, np.array([0, 1, 2, 77], np.int32), 9)
    old = Candidate(1, np.array([88], np.int32), 3)
    assert choose_slot(prompt, [similar_2, old]) == 1
    assert choose_slot(prompt, [similar_3, old]) == 0
    assert choose_slot(prompt, [similar_3, old], similarity_min=0) == 1


def test_without_a_prefix_the_least_recently_used_slot_is_taken() -> None:
    """D.2 slot choice: least recently used; never used comes first."""
    idle = [Candidate(0, tokens(7), 4), Candidate(1, tokens(8), 2), Candidate(2, tokens(), 0), Candidate(3, tokens(), 0)]
    assert choose_slot(tokens(1, 2), idle) == 2
    assert choose_slot(tokens(1, 2), idle[:2]) == 1
    assert choose_slot(tokens(1, 2), []) is None


def test_attention_goes_on_anywhere() -> None:
    """S11: roll-back type PART."""
    assert all(window_reaches(pos, pos_min=0, n_swa=0) for pos in range(11))


def test_a_sliding_window_goes_back_as_far_as_it_remembers() -> None:
    """S11 restore threshold: a token sees the n_swa - 1 before it."""
    assert window_reaches(700, pos_min=0, n_swa=512)
    assert window_reaches(700, pos_min=189, n_swa=512)
    assert not window_reaches(700, pos_min=190, n_swa=512)
    assert window_reaches(300, pos_min=0, n_swa=512)
    assert not window_reaches(300, pos_min=1, n_swa=512)


def test_messages_start_where_their_marker_stands() -> None:
    """S11: the start of each message of the user, by tokens."""
    prompt = tokens(7, 8, 1, 7, 8, 8, 7, 8)
    assert message_starts(prompt, tokens(7, 8)) == (0, 3, 6)
    assert message_starts(prompt, tokens(8, 8)) == (4,)
    assert message_starts(prompt, tokens()) == message_starts(tokens(), tokens(7)) == message_starts(tokens(7), tokens(7, 8)) == ()
