"""The prompt cache in the slots: what is reused, and that reuse never changes an answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.scripted import Bench, ScriptedDecoder, continuation, result, text_of

PROMPT = [5, 6, 7, 8]


def test_the_same_prompt_again_decodes_one_token() -> None:
    """S9: cache_n == n-1, prompt_n == 1, the same answer."""
    bench = Bench()
    first, _ = bench.answer("a", PROMPT, max_tokens=3)
    again, finish = bench.answer("b", PROMPT, max_tokens=3)
    assert again == first
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (3, 1)


def test_a_conversation_that_goes_on_decodes_only_what_is_new() -> None:
    """First light 2: prompt_n counts only the new tokens; the last token of the answer was never decoded, so it is one of them."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=3)
    prompt = [*PROMPT, *continuation(PROMPT, 3), 20, 21]
    text, finish = bench.answer("b", prompt, max_tokens=3)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (6, 3)
    assert text == text_of(continuation(prompt, 3))


def test_an_end_that_differs_is_replaced() -> None:
    """D.2 common prefix: the rest is removed."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=6)
    text, finish = bench.answer("b", [*PROMPT, 20, 21], max_tokens=3)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (4, 2)
    assert text == text_of(continuation([*PROMPT, 20, 21], 3))


def test_the_cache_is_not_used_when_the_request_says_so() -> None:
    """B.2 cache_prompt false."""
    bench = Bench(n_slots=1)
    bench.answer("a", PROMPT, max_tokens=3)
    finish = bench.answer("b", PROMPT, max_tokens=1, cache_prompt=False)[1]
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (0, 4)


def test_a_request_without_cache_leaves_a_similar_slot_alone() -> None:
    """B.2 cache_prompt false: it takes the least recently used slot."""
    bench = Bench(n_slots=2)
    bench.answer("a", PROMPT, max_tokens=1)
    assert bench.answer("b", PROMPT, max_tokens=1, cache_prompt=False)[1].id_slot == 1


def test_two_conversations_keep_their_slots() -> None:
    """D.2 slot choice: each finds its own prefix."""
    bench = Bench(n_slots=2)
    for n_turns in (1, 2, 3):
        for id, token in (("a", 10), ("b", 20)):
            finish = bench.answer(f"{id}{n_turns}", [token] * 6 * n_turns, max_tokens=0)[1]
            assert (finish.id_slot, finish.timings.prompt_n) == ({"a": 0, "b": 1}[id], 6)


def test_a_recurrent_memory_keeps_a_growing_conversation() -> None:
    """S11: nothing is removed, so nothing is decoded again."""
    bench = Bench(ScriptedDecoder(is_recurrent=True))
    bench.answer("a", PROMPT, max_tokens=3)
    prompt = [*PROMPT, *continuation(PROMPT, 3), 20, 21]
    assert bench.answer("b", prompt, max_tokens=1)[1].timings.cache_n == 6


def test_a_recurrent_memory_that_would_have_to_forget_starts_again() -> None:
    """S11: a partial seq_rm that fails means full re-processing, and the right answer."""
    bench = Bench(ScriptedDecoder(is_recurrent=True))
    bench.answer("a", PROMPT, max_tokens=3)
    text, finish = bench.answer("b", [*PROMPT, 20, 21], max_tokens=3)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (0, 6)
    assert text == text_of(continuation([*PROMPT, 20, 21], 3))


def test_a_sliding_window_that_still_has_the_prefix_is_reused() -> None:
    """S11 threshold: a few tokens taken back are within what the window still has."""
    bench = Bench(ScriptedDecoder(window=8), n_swa=4)
    bench.answer("a", [3] * 20, max_tokens=3)
    assert bench.answer("b", [3] * 20 + [20, 21], max_tokens=1)[1].timings.cache_n == 20


def test_a_sliding_window_that_lost_the_prefix_starts_again() -> None:
    """S11 threshold: pos_min beyond what the next token must see."""
    bench = Bench(ScriptedDecoder(window=8), n_swa=4)
    bench.answer("a", [3] * 20, max_tokens=8)
    text, finish = bench.answer("b", [3] * 20 + [20, 21], max_tokens=2)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (0, 22)
    assert text == text_of(continuation([3] * 20 + [20, 21], 2))


def test_a_sliding_window_keeps_a_growing_conversation() -> None:
    """First light 2: Gemma 3: nothing is removed, so the window needs nothing that it lost."""
    bench = Bench(ScriptedDecoder(window=4), n_swa=4)
    bench.answer("a", PROMPT * 4, max_tokens=3)
    prompt = [*PROMPT * 4, *continuation(PROMPT * 4, 3), 20]
    assert bench.answer("b", prompt, max_tokens=1)[1].timings.cache_n == 18


Turn = tuple[list[int], int]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.lists(st.integers(3, 5), min_size=1, max_size=12), st.integers(0, 5)), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([0, 3, 6]),
    st.integers(1, 3),
    st.integers(3, 9),
)
def test_reuse_never_changes_an_answer(turns: list[Turn], is_recurrent: bool, window: int, n_slots: int, n_batch: int) -> None:
    """S9, S11: whatever came before, on every kind of memory, one after the other and all at once."""
    for all_at_once in (False, True):
        bench = Bench(ScriptedDecoder(window=window, is_recurrent=is_recurrent), n_slots=n_slots, n_batch=n_batch, n_swa=min(window, 3))
        outputs = []
        for i, (prompt, n) in enumerate(turns):
            bench.submit(str(i), prompt, max_tokens=n)
            if not all_at_once:
                outputs += bench.run()
        outputs += bench.run()
        for i, (prompt, n) in enumerate(turns):
            text, finish = result(outputs, str(i))
            assert text == text_of(continuation(prompt, n))
            assert finish.timings.cache_n + finish.timings.prompt_n == finish.prompt_tokens == len(prompt)
        for slot in range(n_slots):
            bench.cached(slot)
