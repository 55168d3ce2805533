"""The rules for snapshots (S11): where batches are cut, when one is taken, which stay, which is gone back to."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.checkpoints import Checkpoint, Checkpoints, Spacing, is_due, latest, next_stop, with_new, with_room, within

NO_STATE = np.zeros(0, np.uint8)
SPACING = Spacing(n_max=32, min_step=8192, n_batch=2048, n_ubatch=512)


def kept(*n_tokens: int, task: str = "before") -> Checkpoints:
    return tuple(Checkpoint(n, task, NO_STATE) for n in n_tokens)


def numbers(checkpoints: Checkpoints) -> list[int]:
    return [entry.n_tokens for entry in checkpoints]


def stops(n_prompt: int, user_starts: tuple[int, ...] = (), before: Checkpoints = (), spacing: Spacing = SPACING) -> list[int]:
    """Where the batches of a prompt end that is decoded alone, and nothing stays of the snapshots taken meanwhile."""
    n, ends = 0, []
    while n < n_prompt:
        n = min(next_stop(n, n_prompt, user_starts, before, spacing), n + spacing.n_batch)
        ends.append(n)
    return ends


# ---- where batches are cut


def test_batches_are_cut_before_the_last_ubatch_and_before_the_last_four_tokens() -> None:
    """S11: at `4 + n_ubatch` and at 4 tokens before the prompt end."""
    assert stops(5000) == [2048, 4096, 5000 - 516, 4996, 5000]


def test_a_short_prompt_is_cut_before_its_last_four_tokens() -> None:
    """S11: F2: the n-4 snapshot exists for a prompt of 40 tokens too."""
    assert stops(40) == [36, 40]
    assert stops(4) == [4]


def test_an_offset_is_never_more_than_a_batch() -> None:
    """S11: with n_batch == n_ubatch the earlier snapshot is one batch before the end."""
    assert stops(1000, spacing=Spacing(n_max=32, min_step=8192, n_batch=512, n_ubatch=512)) == [488, 996, 1000]


def test_batches_are_cut_at_the_last_message_of_the_user() -> None:
    """S11: at the start of the last user message, however close the last snapshot is."""
    assert stops(300, (10, 200), kept(190)) == [200, 296, 300]


def test_earlier_messages_of_the_user_cut_only_beyond_the_minimum_step() -> None:
    """S11: at user-message starts more than `min_step` after the last checkpoint."""
    spacing = Spacing(n_max=32, min_step=100, n_batch=2048, n_ubatch=512)
    assert stops(1000, (150, 201, 900), kept(100), spacing) == [201, 484, 900, 996, 1000]


def test_the_first_message_cuts_where_nothing_is_kept() -> None:
    """S11: an empty list is far from everything."""
    assert stops(300, (10, 200)) == [10, 200, 296, 300]


# ---- when one is taken


def test_nothing_is_taken_before_the_first_token() -> None:
    """S11: there is nothing to keep yet."""
    assert not is_due(0, 40, 40, (), (), SPACING)


def test_one_is_taken_near_the_end_of_the_prompt() -> None:
    """S11: when less than a ubatch is left after the batch."""
    assert is_due(4484, 512, 5000, (), (), SPACING)
    assert is_due(4996, 4, 5000, (), kept(4484), SPACING)
    assert not is_due(2048, 2048, 5000, (), (), SPACING)


def test_one_is_taken_where_the_last_message_of_the_user_begins() -> None:
    """S11: also right after another one."""
    assert is_due(3000, 100, 9000, (10, 3000), kept(2999), SPACING)


def test_one_is_taken_at_an_earlier_message_beyond_the_minimum_step_only() -> None:
    """S11: F4: no rule floods the list."""
    spacing = Spacing(n_max=32, min_step=100, n_batch=512, n_ubatch=512)
    assert is_due(201, 100, 9000, (201, 3000), kept(100), spacing)
    assert not is_due(200, 100, 9000, (200, 3000), kept(100), spacing)
    assert not is_due(300, 100, 9000, (201, 3000), kept(100), spacing)


def test_none_is_taken_where_none_may_be_kept() -> None:
    """S11: --ctx-checkpoints 0."""
    assert not is_due(36, 4, 40, (), (), Spacing(n_max=0, min_step=0, n_batch=512, n_ubatch=512))


# ---- which stay


def test_a_short_prompt_keeps_its_early_and_its_late_snapshot() -> None:
    """S11: spacing drops nothing while there is room, so the snapshot four tokens before the end stays."""
    assert numbers(with_room(kept(100, 596), 900, "now", SPACING)) == [100, 596]


def test_a_full_list_loses_those_that_are_too_close_to_the_one_before() -> None:
    """S11 rule 1: oldest to newest; the oldest stays; the pass ends as soon as there is room."""
    spacing = Spacing(n_max=4, min_step=100, n_batch=512, n_ubatch=512)
    assert numbers(with_room(kept(10, 50, 90, 300), 400, "now", spacing)) == [10, 300]
    assert numbers(with_room(kept(10, 50, 90), 400, "now", spacing)) == [10, 90]


def test_the_default_list_of_32_is_spaced() -> None:
    """S11 rule 1, with the defaults."""
    assert numbers(with_room(kept(*range(1000, 33_000, 1000)), 40_000, "now", SPACING)) == [1000, *range(4000, 33_000, 1000)]


def test_snapshots_of_the_same_request_survive_the_spacing() -> None:
    """S11 rule 1: entries of the current task."""
    spacing = Spacing(n_max=4, min_step=100, n_batch=512, n_ubatch=512)
    entries = (*kept(10), *kept(20, 30, task="now"))
    assert numbers(with_room(entries, 40, "now", spacing)) == [10, 20, 30]


def test_the_oldest_goes_when_spacing_makes_no_room() -> None:
    """S11 rule 2."""
    spacing = Spacing(n_max=3, min_step=5, n_batch=512, n_ubatch=512)
    assert numbers(with_room(kept(10, 20, 30), 40, "now", spacing)) == [20, 30]


def test_one_of_the_same_length_is_replaced_and_no_other_leaves_for_it() -> None:
    """S11 rule 3 before rule 2: a full list does not lose its oldest for nothing."""
    spacing = Spacing(n_max=3, min_step=5, n_batch=512, n_ubatch=512)
    assert numbers(with_room(kept(10, 20, 30), 30, "now", spacing)) == [10, 20]


def test_a_new_one_takes_its_place_in_the_order() -> None:
    """S11: F5: one that is longer, and still right, may be there already."""
    assert numbers(with_new(kept(10, 50), Checkpoint(30, "now", NO_STATE))) == [10, 30, 50]


# ---- which is gone back to


def test_the_longest_within_the_prefix_is_taken() -> None:
    """S11 restore: newest to oldest, none that goes beyond."""
    assert [entry and entry.n_tokens for n in (9, 10, 49, 50, 99) for entry in (latest(kept(10, 50, 90), n),)] == [None, 10, 10, 50, 90]


def test_only_those_beyond_the_common_prefix_are_dropped() -> None:
    """S11, F4: erase(c) implies that c is not a prefix of the new prompt."""
    assert numbers(within(kept(10, 50, 90), 50)) == [10, 50]


@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from("ab")), max_size=30), st.integers(1, 6), st.integers(0, 20))
def test_the_list_stays_in_order_and_within_its_limit(added: list[tuple[int, str]], n_max: int, min_step: int) -> None:
    """S11, F5: order strictly increasing, and the one just taken is always there."""
    spacing = Spacing(n_max=n_max, min_step=min_step, n_batch=512, n_ubatch=512)
    entries: Checkpoints = ()
    for n_tokens, task in added:
        entries = with_new(with_room(entries, n_tokens, task, spacing), Checkpoint(n_tokens, task, NO_STATE))
        assert len(entries) <= n_max
        assert numbers(entries) == sorted(set(numbers(entries)))
        assert n_tokens in numbers(entries)
