"""A full context that goes on (`--context-shift`), and chunks of the cache that move (`n_cache_reuse`)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.prefix import movable_chunks
from lsm.engine.shift import shift_range
from lsm.errors import InvalidRequest
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, error, next_token, result, tokens

PROMPT = [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("n", "n_ctx", "n_keep", "n_discard", "expected"),
    [
        (15, 16, 0, 0, (0, 7)),  # half of all
        (15, 16, 4, 0, (4, 5)),  # half of what is not kept
        (15, 16, 4, 3, (4, 3)),  # as many as asked for
        (15, 16, 4, 99, (4, 10)),  # one stays
        (15, 16, 99, 0, (12, 1)),  # four positions cannot be kept
        (15, 16, 1, 2**31 - 1, (1, 13)),
        (1, 2, 9, 0, (0, 0)),  # nothing to drop
    ],
)
def test_which_tokens_leave(n: int, n_ctx: int, n_keep: int, n_discard: int, expected: tuple[int, int]) -> None:
    """D.2 context shift: keep n_keep, discard n_discard or half of the rest."""
    assert shift_range(n, n_ctx, n_keep, n_discard) == expected


@given(st.integers(0, 40), st.integers(1, 41), st.integers(0, 100), st.integers(0, 2**31 - 1))
def test_what_leaves_is_there(n: int, n_ctx: int, n_keep: int, n_discard: int) -> None:
    """K5 of the known faults: no number of a request reaches outside the cache."""
    start, count = shift_range(n, n_ctx, n_keep, n_discard)
    assert 0 <= start and 0 <= count and (count == 0 or start + count < n)


def shifted(prompt: list[int], n: int, n_ctx: int, n_keep: int, n_discard: int = 0) -> list[int]:
    """The answer of a model that sees what is left after each shift."""
    seen, answer = list(prompt), []
    for _ in range(n):
        answer.append(next_token(seen))
        if len(seen) + 1 >= n_ctx:
            start, count = shift_range(len(seen), n_ctx, n_keep, n_discard)
            del seen[start : start + count]
        seen.append(answer[-1])
    return answer


@pytest.mark.parametrize(("options", "n_keep", "n_discard"), [({}, 0, 0), ({"n_keep": 2}, 2, 0), ({"n_keep": -1, "n_discard": 2}, 4, 2)])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_a_full_slot_drops_older_tokens_and_goes_on(options: dict[str, int], n_keep: int, n_discard: int, adds_bos: bool) -> None:
    """D.2 context shift: positions are right after each, the answer has all its tokens, and says that it is truncated."""
    bench = Bench(n_ctx_slot=12, context_shift=True, can_shift=True, adds_bos=adds_bos)
    bench.submit("a", PROMPT, max_tokens=40, **options)
    outputs = bench.run()
    assert tokens(outputs, "a") == shifted(PROMPT, 40, 12, n_keep + adds_bos, n_discard)
    finish = result(outputs, "a")[1]
    assert (finish.stop_type, finish.truncated, finish.completion_tokens) == ("limit", True, 40)
    bench.cached(0)


def test_an_answer_that_fits_is_not_truncated() -> None:
    """B.2 truncated: only if something left the context."""
    bench = Bench(n_ctx_slot=12, context_shift=True, can_shift=True)
    assert not bench.answer("a", PROMPT, max_tokens=8)[1].truncated


def test_the_limit_of_tokens_goes_before_a_shift() -> None:
    """Machine slot, full: an answer that ends anyway drops nothing."""
    bench = Bench(n_ctx_slot=12, context_shift=True, can_shift=True)
    bench.answer("a", PROMPT, max_tokens=8)
    assert bench.cached(0) == [*PROMPT, *continuation(PROMPT, 7)]


@pytest.mark.parametrize(("context_shift", "can_shift"), [(False, True), (True, False)])
def test_without_a_shift_a_full_slot_ends_the_answer(context_shift: bool, can_shift: bool) -> None:
    """B.2, D.2: off by default; not where the memory cannot."""
    bench = Bench(ScriptedDecoder(is_recurrent=not can_shift), n_ctx_slot=12, context_shift=context_shift, can_shift=can_shift)
    finish = bench.answer("a", PROMPT, max_tokens=40)[1]
    assert (finish.stop_type, finish.truncated, finish.completion_tokens) == ("limit", True, 8)


def test_the_prompt_must_fit_also_where_the_context_shifts() -> None:
    """B.2: condition N >= slot n_ctx."""
    bench = Bench(n_ctx_slot=12, context_shift=True, can_shift=True)
    bench.submit("a", [3] * 12)
    assert error(bench.run(), "a").message.startswith("request (12 tokens) exceeds")


def test_choices_that_share_cells_do_not_shift_them_under_each_other() -> None:
    """D.2: a shift would move the tokens of the other slot too; the answer ends instead, while the other is busy."""
    bench = Bench(n_ctx_slot=12, context_shift=True, can_shift=True)
    bench.submit("a", PROMPT, script=[9], scripts=[[10]], n=2, max_tokens=40)
    outputs = bench.run()
    first, second = result(outputs, "a", 0)[1], result(outputs, "a", 1)[1]
    assert (first.stop_type, first.truncated, first.completion_tokens) == ("limit", True, 8)
    assert second.completion_tokens == 40, "it has the cells for itself when the first has ended"
    assert tokens(outputs, "a", 1)[1:] == shifted([*PROMPT, 10], 39, 12, 0)
    assert bench.cached(0) == [], "what the other moved is forgotten"


def test_choices_with_a_cache_each_shift_freely() -> None:
    """D.2: copies are not shared."""
    bench = Bench(ScriptedDecoder(shares_cells=False), shares_cells=False, n_ctx_slot=12, context_shift=True, can_shift=True)
    bench.submit("a", PROMPT, n=2, max_tokens=20)
    outputs = bench.run()
    for index in (0, 1):
        assert tokens(outputs, "a", index) == shifted(PROMPT, 20, 12, 0)


@pytest.mark.parametrize("field", ["n_keep", "n_discard", "n_cache_reuse"])
def test_numbers_out_of_range_are_refused(field: str) -> None:
    """B.2: hard limits."""
    bench = Bench()
    bench.submit("a", PROMPT, **{field: -2})
    refused = error(bench.run(), "a")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == field


# Cache reuse


@pytest.mark.parametrize(
    ("cached", "prompt", "n_common", "n_min", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], [1, 5, 6], 1, 2, [(4, 1, 2)]),  # a gap is closed
        ([1, 2, 3, 4, 5, 6], [1, 5, 6], 1, 3, []),  # too short
        ([1, 2, 3, 9, 4, 5, 9, 6, 7], [1, 3, 4, 5, 6, 7, 8], 1, 1, [(2, 1, 1), (4, 2, 2), (7, 4, 2)]),
        ([1, 2, 3, 9, 4, 5, 9, 6, 7], [1, 3, 4, 5, 6, 7, 8], 1, 2, []),  # 3 alone is too short, and what follows must be found in order
        ([1, 2], [1, 2, 3], 2, 1, []),
        ([5, 1, 2, 3], [1, 2, 3], 0, 2, [(1, 0, 3)]),  # the beginning has left
    ],
)
def test_which_chunks_move(cached: list[int], prompt: list[int], n_common: int, n_min: int, expected: list[tuple[int, int, int]]) -> None:
    """C.3 --cache-reuse: chunks of at least so many tokens, in order, each moved to where the prompt has it."""
    assert movable_chunks(np.array(cached, np.int32), np.array(prompt, np.int32), n_common, n_min) == expected


def test_what_an_edit_left_in_place_is_not_decoded_again() -> None:
    """C.3 --cache-reuse: a message in the middle is taken out; what follows moves up."""
    bench = Bench(can_shift=True, n_slots=1)
    bench.answer("a", [*PROMPT, 20, 21, 9, 10, 11, 12], max_tokens=1)
    prompt = [*PROMPT, 9, 10, 11, 12, 13]
    text, finish = bench.answer("b", prompt, max_tokens=3, n_cache_reuse=3)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (8, 1)
    assert bench.cached(0)[:9] == prompt
    assert text == bench.answer("again", prompt, max_tokens=3, cache_prompt=False)[0]


def test_it_is_refused_where_the_memory_cannot_shift() -> None:
    """C.3 --cache-reuse: what cannot be done is not ignored."""
    bench = Bench(can_shift=False)
    bench.submit("a", PROMPT, n_cache_reuse=1)
    refused = error(bench.run(), "a")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == "n_cache_reuse"


@pytest.mark.parametrize("n_cache_reuse", [0, 5])
def test_chunks_that_are_too_short_stay(n_cache_reuse: int) -> None:
    """C.3 --cache-reuse: off by default; shorter chunks are not worth it."""
    bench = Bench(can_shift=True, n_slots=1)
    bench.answer("a", [*PROMPT, 20, 21, 9, 10, 11, 12], max_tokens=1)
    finish = bench.answer("b", [*PROMPT, 9, 10, 11, 12, 13], max_tokens=1, n_cache_reuse=n_cache_reuse)[1]
    assert finish.timings.cache_n == 4


def test_cells_that_another_busy_slot_shares_do_not_move() -> None:
    """C.3 --cache-reuse: another's answer goes on undisturbed."""
    bench = Bench(can_shift=True, n_slots=2)
    prompt = [*PROMPT, 20, 21, 9, 10, 11, 12]
    bench.submit("a", prompt, scripts=[[0]], n=2, max_tokens=20)
    bench.scheduler.step()
    bench.submit("b", [*PROMPT, 9, 10, 11, 12, 13], max_tokens=1, n_cache_reuse=3)
    outputs = bench.run()
    assert result(outputs, "b")[1].timings.cache_n == 4
    assert tokens(outputs, "a") == continuation(prompt, 20)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.lists(st.integers(3, 5), min_size=1, max_size=14), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 2),
)
def test_moving_never_leaves_a_wrong_cache(turns: list[tuple[list[int], int]], n_min: int, context_shift: bool, n: int) -> None:
    """C.3, D.2: whatever was moved, each slot holds the tokens it believes in, each at its position."""
    bench = Bench(n_ctx_slot=16, n_slots=3, can_shift=True, context_shift=context_shift)
    for i, (prompt, max_tokens) in enumerate(turns):
        bench.submit(str(i), prompt, max_tokens=8 * max_tokens, n_cache_reuse=n_min, n=n)
        bench.scheduler.step()
    outputs = bench.run()
    for i in range(len(turns)):
        result(outputs, str(i))
    for slot in range(3):
        bench.cached(slot)
