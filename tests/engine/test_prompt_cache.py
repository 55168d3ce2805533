"""The rules of the prompt cache in host memory (D.2): what enters, what leaves, what is taken back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.checkpoints import Checkpoint
from lsm.engine.prompt import Span
from lsm.engine.prompt_cache import Entry, Held, PromptCache


def test_what_other_adapters_made_is_not_shared() -> None:
    """B.1 POST /lora-adapters: equal tokens, other scales; and nothing of what several scales made, not even with itself."""
    tokens = np.array([1, 2, 3], np.int32)
    plain, scaled, mixed = (Held(tokens, adapters=adapters) for adapters in ((0.0,), (0.5,), None))
    assert [one.shared(other) for one in (plain, scaled) for other in (plain, scaled)] == [3, 0, 0, 3]
    assert [mixed.shared(other) for other in (plain, scaled, mixed)] == [0, 0, 0] == [plain.shared(mixed), scaled.shared(mixed), 0]


def held(*tokens: int) -> Held:
    return Held(np.array(tokens, np.int32))


def entry(*tokens: int, size_bytes: int = 0) -> Entry:
    """Of so many bytes in all, if this is more than its tokens."""
    return Entry(held(*tokens), np.zeros(max(0, size_bytes - 4 * len(tokens)), np.uint8))


def put(cache: PromptCache, new: Entry) -> bool:
    fits = cache.make_room(new.held, new.size_bytes)
    if fits:
        cache.add(new)
    return fits


def contents(cache: PromptCache) -> list[list[int]]:
    return [kept.held.tokens.tolist() for kept in cache]


def test_what_an_entry_contains_is_in_the_cache() -> None:
    """D.2: it need not be stored again."""
    cache = PromptCache(None, 100)
    put(cache, entry(1, 2, 3))
    assert cache.has(held(1, 2)) and cache.has(held(1, 2, 3))
    assert not cache.has(held(1, 2, 3, 4)) and not cache.has(held(2))


def test_what_a_new_entry_contains_leaves() -> None:
    """D.2: the beginning of a conversation is nothing beside its end."""
    cache = PromptCache(None, 100)
    for tokens in ((1, 2), (1, 9), (1, 2, 3)):
        put(cache, entry(*tokens))
    assert contents(cache) == [[1, 9], [1, 2, 3]]


def test_the_oldest_leave_for_a_new_one() -> None:
    """D.2: limit in bytes, oldest evicted."""
    cache = PromptCache(100, 0)
    for token in (1, 2, 3):
        put(cache, entry(token, size_bytes=50))
    assert (contents(cache), cache.size_bytes) == ([[2], [3]], 100)


def test_what_is_larger_than_the_limit_disturbs_nothing() -> None:
    """F9: entry > limit implies not cached."""
    cache = PromptCache(100, 0)
    put(cache, entry(1, size_bytes=60))
    assert not put(cache, entry(2, size_bytes=101))
    assert contents(cache) == [[1]]


def test_snapshots_count() -> None:
    """F9: the bytes of all parts."""
    one = entry(1, size_bytes=10)
    with_snapshot = Entry(one.held, one.state, (Checkpoint(1, "a", np.zeros(7, np.uint8)),))
    assert with_snapshot.size_bytes == 17


def test_tokens_are_limited_where_bytes_are_not() -> None:
    """D.2: limit in tokens; the newest stays even when it alone is over it."""
    cache = PromptCache(None, 5)
    for tokens in ((1, 1, 1), (2, 2), (3, 3, 3)):
        put(cache, entry(*tokens))
    assert contents(cache) == [[2, 2], [3, 3, 3]]
    put(cache, entry(4, 4, 4, 4, 4, 4))
    assert contents(cache) == [[4, 4, 4, 4, 4, 4]]


def test_more_tokens_may_stay_if_their_bytes_fit() -> None:
    """D.2: the limit in tokens is raised to what the bytes allow."""
    cache = PromptCache(1000, 2)
    put(cache, entry(1, 1, 1))
    put(cache, entry(2, 2, 2))
    assert len(cache) == 2


def test_the_entry_that_serves_best_is_taken_and_leaves() -> None:
    """D.2: a better cached state is loaded."""
    cache = PromptCache(None, 100)
    for tokens in ((1, 2, 9), (1, 2, 3, 4), (1, 8, 8)):
        put(cache, entry(*tokens))
    taken = cache.take_better(held(1, 7, 7), held(1, 2, 3, 4, 5))
    assert taken is not None and taken.held.tokens.tolist() == [1, 2, 3, 4]
    assert (contents(cache), cache.hits) == ([[1, 2, 9], [1, 8, 8]], 1)


def test_an_entry_that_would_lose_three_quarters_stays() -> None:
    """D.2: entries need >= 25 % overlap to be taken."""
    cache = PromptCache(None, 100)
    put(cache, entry(1, 2, 3, 4, 5, 6, 7, 8))
    assert cache.take_better(held(), held(1, 9)) is None
    assert cache.take_better(held(), held(1, 2, 9)) is not None


def test_what_serves_no_better_than_the_slot_stays() -> None:
    """D.2: more of the prompt, and a larger part of the entry."""
    cache = PromptCache(None, 100)
    put(cache, entry(1, 2, 8, 8))
    assert cache.take_better(held(1, 2, 7), held(1, 2, 3)) is None
    put(cache, entry(1, 2, 3, 8, 8, 8))
    assert cache.take_better(held(1, 2), held(1, 2, 3)) is None, "two of two tokens are of use in the slot, three of six here"


def test_other_media_are_another_prompt() -> None:
    """F8: a media id is part of the key, though its placeholder were the same."""
    red, blue = (Held(np.array([1, -5, -5, 2], np.int32), (Span(1, 2, 2, id),)) for id in ("red", "blue"))
    cache = PromptCache(None, 100)
    put(cache, Entry(red, np.zeros(0, np.uint8)))
    assert not cache.has(blue)
    assert red.shared(blue) == 1


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.integers(0, 60)), max_size=30),
    st.integers(1, 120),
    st.integers(0, 20),
)
def test_the_limit_in_bytes_holds_after_every_step(steps: list[tuple[list[int], int]], limit_bytes: int, limit_tokens: int) -> None:
    """F9: the sum of the bytes of all parts is within the limit, and no entry contains another."""
    cache = PromptCache(limit_bytes, limit_tokens)
    for tokens, size_bytes in steps:
        new = entry(*tokens, size_bytes=size_bytes)
        if not cache.has(new.held):
            put(cache, new)
        assert cache.size_bytes <= limit_bytes
        for one in cache:
            assert sum(other.held.shared(one.held) == len(one.held.tokens) for other in cache) == 1
