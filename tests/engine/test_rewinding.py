"""Snapshots in a scheduler: what a prompt goes back to, and that going back never changes an answer (S11)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.checkpoints import Spacing
from lsm.errors import DecodeFailed
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, result, text_of

SPACING = Spacing(n_max=4, min_step=8, n_batch=8, n_ubatch=6)
PROMPT = [3 + i % 5 for i in range(30)]


def bench_of(decoder: ScriptedDecoder, n_swa: int = 0, spacing: Spacing = SPACING, **limits: object) -> Bench:
    return Bench(decoder, n_swa=n_swa, can_trim=not decoder.is_recurrent, spacing=spacing, **limits)


def snapshots(bench: Bench, slot: int = 0) -> list[int]:
    return [entry.n_tokens for entry in bench.scheduler.pool.slots[slot].checkpoints]



@pytest.fixture(params=["recurrent", "sliding"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "recurrent":
        return bench_of(ScriptedDecoder(is_recurrent=True))
    return bench_of(ScriptedDecoder(window=8), n_swa=5)


def test_snapshots_are_taken_before_the_end_of_the_prompt(bench: Bench) -> None:
    """S11: at 4 + n_ubatch (here a batch) and at 4 before the end, before the batch that goes beyond."""
    bench.answer("a", PROMPT, max_tokens=1)
    assert snapshots(bench) == [22, 26]


def test_a_prompt_with_another_end_goes_back_to_the_snapshot_before_it(bench: Bench) -> None:
    """S11: the second, longer prompt resumes 4 tokens before the end of the first; the answer is that of a fresh model."""
    bench.answer("a", PROMPT, max_tokens=12)
    prompt = [*PROMPT[:28], 20, 21, 22]
    text, finish = bench.answer("b", prompt, max_tokens=3)
    assert (finish.timings.cache_n, finish.timings.prompt_n) == (26, 5)
    assert text == text_of(continuation(prompt, 3))


def test_the_same_prompt_again_decodes_four_tokens(bench: Bench) -> None:
    """S11, F12, F13: everything matched, so the step back is to the snapshot; at least one token is decoded."""
    first, _ = bench.answer("a", PROMPT, max_tokens=12)
    again, finish = bench.answer("b", PROMPT, max_tokens=12)
    assert (again, finish.timings.cache_n) == (first, 26)


def test_snapshots_beyond_the_common_prefix_go_and_the_others_stay(bench: Bench) -> None:
    """S11: afterwards drop those beyond; F4: no other."""
    bench.answer("a", PROMPT, max_tokens=12)
    bench.answer("b", [*PROMPT[:24], 20], max_tokens=12)
    assert snapshots(bench) == [22]
    assert bench.answer("c", [*PROMPT[:23], 21, 22], max_tokens=1)[1].timings.cache_n == 22


def test_without_a_snapshot_all_is_decoded_again(bench: Bench) -> None:
    """S11: none -> full re-processing."""
    bench.answer("a", PROMPT, max_tokens=12)
    prompt = [*PROMPT[:15], *[20] * 5]
    text, finish = bench.answer("b", prompt, max_tokens=3)
    assert (finish.timings.cache_n, text) == (0, text_of(continuation(prompt, 3)))


def test_a_conversation_that_grows_needs_no_snapshot(bench: Bench) -> None:
    """S11: what the memory still holds goes before any snapshot."""
    bench.answer("a", PROMPT, max_tokens=3)
    prompt = [*PROMPT, *continuation(PROMPT, 3), 20]
    assert bench.answer("b", prompt, max_tokens=1)[1].timings.cache_n == 32


def test_a_snapshot_that_cannot_be_put_back_means_all_again(bench: Bench) -> None:
    """F6: an unusable checkpoint: drop and re-prefill."""
    bench.answer("a", PROMPT, max_tokens=12)
    bench.decoder.spoiled_states = True
    text, finish = bench.answer("b", PROMPT, max_tokens=3)
    assert (finish.timings.cache_n, text) == (0, text_of(continuation(PROMPT, 3)))
    assert snapshots(bench) == [22, 26]


def test_without_memory_for_a_snapshot_the_prompt_goes_on(bench: Bench) -> None:
    """S11, P16: a failed allocation costs a snapshot, not a request."""
    bench.decoder.no_room_for_states = True
    assert bench.answer("a", PROMPT, max_tokens=3)[0] == text_of(continuation(PROMPT, 3))
    assert snapshots(bench) == []


def test_a_sequence_that_is_cleared_takes_its_snapshots_along(bench: Bench) -> None:
    """S11: a partial state is nothing without the rest of the memory."""
    bench.submit("a", PROMPT, max_tokens=5)
    for _ in range(6):
        bench.scheduler.step()
    assert snapshots(bench) == [22, 26]
    bench.scheduler.fail_all(DecodeFailed("lost"))
    assert snapshots(bench) == []


def test_snapshots_are_taken_where_messages_of_the_user_begin() -> None:
    """S11: a conversation whose last answer is taken back resumes where its question began."""
    bench = bench_of(ScriptedDecoder(is_recurrent=True), spacing=Spacing(n_max=8, min_step=8, n_batch=8, n_ubatch=6))
    bench.submit("a", PROMPT, user_starts=(2, 5, 12), max_tokens=2)
    bench.run()
    assert snapshots(bench) == [2, 12, 22, 26]
    assert bench.answer("b", [*PROMPT[:14], 20], max_tokens=1)[1].timings.cache_n == 12


def test_a_prompt_that_was_cancelled_leaves_only_what_it_decoded() -> None:
    """S11: F1: n_past <= checkpoint tokens <= common prefix, also when a longer snapshot was kept for a prompt that never got so far."""
    bench = bench_of(ScriptedDecoder(is_recurrent=True), n_slots=1)
    bench.answer("a", PROMPT, max_tokens=1)
    bench.submit("b", PROMPT[:26], max_tokens=1)  # as long as the snapshot of 26, which stays
    bench.scheduler.step()
    bench.scheduler.cancel("b")
    prompt = [*PROMPT[:26], 20, 21]
    text, finish = bench.answer("c", prompt, max_tokens=3)
    assert finish.timings.cache_n <= 26
    assert text == text_of(continuation(prompt, 3))


Turn = tuple[list[int], int, bool]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.lists(st.integers(3, 4), min_size=1, max_size=24), st.integers(0, 5), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([("recurrent", 0), ("sliding", 3), ("sliding", 6)]),
    st.integers(1, 3),
    st.integers(3, 9),
    st.integers(0, 4),
    st.lists(st.integers(1, 20), max_size=3),
)
def test_going_back_never_changes_an_answer(
    turns: list[Turn], kind: tuple[str, int], n_slots: int, n_batch: int, n_max: int, user_starts: list[int]
) -> None:
    """S11: whatever came before, on every kind of memory; some requests are cancelled after two steps."""
    name, window = kind
    decoder = ScriptedDecoder(is_recurrent=True) if name == "recurrent" else ScriptedDecoder(window=window)
    spacing = Spacing(n_max=n_max, min_step=3, n_batch=n_batch, n_ubatch=min(n_batch, 4))
    bench = bench_of(decoder, n_swa=min(window, 3), spacing=spacing, n_slots=n_slots, n_batch=n_batch)
    for i, (prompt, n, is_cancelled) in enumerate(turns):
        starts = tuple(sorted({start for start in user_starts if start < len(prompt)}))
        bench.submit(str(i), prompt, user_starts=starts, max_tokens=n)
        if is_cancelled:
            bench.scheduler.step()
            bench.scheduler.step()
            bench.scheduler.cancel(str(i))
            bench.run()
        else:
            assert result(bench.run(), str(i))[0] == text_of(continuation(prompt, n))
        for slot in range(n_slots):
            bench.cached(slot)
            assert len(snapshots(bench, slot)) <= n_max
