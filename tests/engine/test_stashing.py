"""The prompt cache in host memory, in a scheduler: what is stored, what is taken back, and that neither changes an answer (D.2)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.checkpoints import Spacing
from lsm.values import Counters
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, result, text_of

ONE = [3 + i % 7 for i in range(20)]
TWO = [10 + i % 7 for i in range(20)]
AMPLE = 1 << 20


def bench_of(decoder: ScriptedDecoder | None = None, n_slots: int = 1, **limits: object) -> Bench:
    defaults: dict[str, object] = {"cache_limit_bytes": AMPLE, "cache_limit_tokens": 1000}
    return Bench(decoder, n_slots=n_slots, **(defaults | limits))


def counters(bench: Bench) -> Counters:
    return bench.scheduler.counters()


def stored(bench: Bench) -> list[list[int]]:
    return [entry.held.tokens.tolist() for entry in bench.scheduler.cache.stashing.cache]


def test_a_slot_that_is_taken_over_keeps_its_content_in_host_memory() -> None:
    """D.2: its state goes to the prompt cache first, and is loaded when a prompt begins alike."""
    bench = bench_of()
    first, _ = bench.answer("a", ONE, max_tokens=4)
    bench.answer("b", TWO, max_tokens=4)
    prompt = [*ONE, *continuation(ONE, 4), 20, 21]
    text, finish = bench.answer("c", prompt, max_tokens=3)
    assert (finish.timings.cache_n, text) == (len(ONE) + 3, text_of(continuation(prompt, 3)))
    assert counters(bench).prompt_cache_hits == 1


def test_a_slot_that_keeps_half_of_its_content_stores_nothing() -> None:
    """D.2: less than half of its content is what it takes."""
    bench = bench_of()
    bench.answer("a", ONE, max_tokens=1)
    bench.answer("b", [*ONE[:10], 20, 21], max_tokens=1)
    assert stored(bench) == []
    bench.answer("c", [*ONE[:5], 22, 23], max_tokens=1)
    assert stored(bench) == [[*ONE[:10], 20, 21]]


def test_a_slot_that_loses_nothing_stores_nothing() -> None:
    """D.2: a prompt that goes on needs no copy of what stays."""
    bench = bench_of()
    bench.answer("a", ONE[:3], max_tokens=1)
    bench.answer("b", [*ONE[:3], *([20] * 40)], max_tokens=1)
    assert stored(bench) == []


def test_without_a_cache_nothing_is_copied() -> None:
    """C.3: --cache-ram 0."""
    bench = bench_of(cache_limit_bytes=0, cache_idle_slots=True)
    bench.decoder.is_away = True  # a copy would be noticed
    for id, prompt in (("a", ONE), ("b", TWO), ("c", ONE)):
        assert bench.answer(id, prompt, max_tokens=1)[1].timings.cache_n == 0


def test_idle_slots_are_stored_and_cleared_when_a_request_starts() -> None:
    """C.3: --cache-idle-slots, with unified KV."""
    bench = bench_of(n_slots=2, cache_idle_slots=True)
    bench.answer("a", ONE, max_tokens=2)
    bench.answer("b", TWO, max_tokens=2)
    assert (bench.cached(0), stored(bench)) == ([], [[*ONE, *continuation(ONE, 1)]])
    assert bench.answer("c", [*ONE, 20], max_tokens=1)[1].timings.cache_n == len(ONE)


def test_idle_slots_with_cells_of_their_own_are_stored_and_stay() -> None:
    """C.3: without unified KV clearing one gives no room to others."""
    bench = bench_of(n_slots=2, cache_idle_slots=True, shares_cells=False)
    bench.answer("a", ONE, max_tokens=1)
    bench.answer("b", TWO, max_tokens=1)
    assert (bench.cached(0), stored(bench)) == (ONE, [ONE])


def test_an_idle_slot_that_cannot_be_stored_is_not_cleared() -> None:
    """F9, C.3: an entry over the limit is not cached; then it stays where it is."""
    bench = bench_of(n_slots=2, cache_idle_slots=True, cache_limit_bytes=100)
    bench.answer("a", ONE, max_tokens=1)
    bench.answer("b", TWO, max_tokens=1)
    assert (bench.cached(0), stored(bench)) == (ONE, [])


def test_requests_that_start_together_put_away_only_what_none_of_them_took() -> None:
    """C.3: two conversations that go on at the same time keep their slots."""
    bench = bench_of(n_slots=3, cache_idle_slots=True)
    for id, prompt in (("a", ONE), ("b", TWO)):
        bench.submit(id, prompt, max_tokens=1)
    bench.run()
    for id, prompt in (("c", [*ONE, 20]), ("d", [*TWO, 20])):
        bench.submit(id, prompt, max_tokens=1)
    outputs = bench.run()
    assert [result(outputs, id)[1].timings.cache_n for id in "cd"] == [20, 20]
    assert counters(bench).prompt_cache_hits == 0


def test_older_entries_go_when_the_host_has_no_memory() -> None:
    """P16: an allocation that fails: drop entries, go on."""
    bench = bench_of()
    bench.answer("a", ONE, max_tokens=1)
    bench.answer("b", TWO, max_tokens=1)
    bench.decoder.no_room_for_states = True
    text, finish = bench.answer("c", ONE[::-1], max_tokens=2)
    assert (text, finish.timings.cache_n, stored(bench)) == (text_of(continuation(ONE[::-1], 2)), 0, [])


def test_an_entry_that_cannot_be_put_back_costs_only_the_prompt() -> None:
    """F6, F11: the same prompt then succeeds."""
    bench = bench_of()
    bench.answer("a", ONE, max_tokens=1)
    bench.answer("b", TWO, max_tokens=1)
    bench.decoder.spoiled_states = True
    text, finish = bench.answer("c", [*ONE, 20], max_tokens=2)
    assert (text, finish.timings.cache_n) == (text_of(continuation([*ONE, 20], 2)), 0)


def test_idle_slots_make_room_for_what_is_put_back() -> None:
    """D.2: with unified KV the cells that an entry needs may be an idle slot's."""
    bench = bench_of(ScriptedDecoder(n_cells=30), n_slots=2)
    bench.answer("a", ONE, id_slot=0, max_tokens=1)
    bench.answer("b", TWO[:10], id_slot=0, max_tokens=1)
    bench.answer("c", TWO[3:], id_slot=1, max_tokens=1)
    finish = bench.answer("d", [*ONE, 20], id_slot=0, max_tokens=1)[1]
    assert finish.timings.cache_n == len(ONE)
    assert bench.cached(1) == []


def test_an_entry_brings_its_snapshots() -> None:
    """S11: entries hold checkpoints too: a hybrid's prompt resumes from one after it came back."""
    spacing = Spacing(n_max=4, min_step=8, n_batch=8, n_ubatch=6)
    bench = bench_of(ScriptedDecoder(is_recurrent=True), can_trim=False, spacing=spacing)
    bench.answer("a", ONE, max_tokens=8)
    bench.answer("b", TWO, max_tokens=8)
    prompt = [*ONE[:18], 20, 21, 22]
    text, finish = bench.answer("c", prompt, max_tokens=2)
    assert (finish.timings.cache_n, text) == (16, text_of(continuation(prompt, 2)))


def test_a_request_without_cache_takes_nothing_but_loses_nothing() -> None:
    """B.2 cache_prompt false: the slot's content is stored, no entry is loaded."""
    bench = bench_of()
    bench.answer("a", ONE, max_tokens=1)
    assert bench.answer("b", ONE, max_tokens=1, cache_prompt=False)[1].timings.cache_n == 0
    assert stored(bench) == [ONE]


Turn = tuple[list[int], int]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.lists(st.integers(3, 4), min_size=1, max_size=20), st.integers(0, 4)), min_size=1, max_size=10),
    st.sampled_from([("plain", 0), ("recurrent", 0), ("sliding", 4)]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([100, 300, AMPLE, None]),
    st.booleans(),
)
def test_the_cache_never_changes_an_answer(
    turns: list[Turn], kind: tuple[str, int], n_slots: int, cache_idle_slots: bool, limit_bytes: int | None, at_once: bool
) -> None:
    """D.2, F9: whatever came before, on every kind of memory; bytes stay within the limit."""
    name, window = kind
    decoder = ScriptedDecoder(is_recurrent=name == "recurrent", window=window)
    spacing = Spacing(n_max=0 if name == "plain" else 3, min_step=3, n_batch=8, n_ubatch=4)
    bench = bench_of(
        decoder,
        n_slots=n_slots,
        n_swa=min(window, 3),
        can_trim=name != "recurrent",
        spacing=spacing,
        cache_idle_slots=cache_idle_slots,
        cache_limit_bytes=limit_bytes,
    )
    outputs = []
    for i, (prompt, n) in enumerate(turns):
        bench.submit(str(i), prompt, max_tokens=n)
        if not at_once:
            outputs += bench.run()
            assert limit_bytes is None or counters(bench).prompt_cache_bytes <= limit_bytes
    outputs += bench.run()
    for i, (prompt, n) in enumerate(turns):
        assert result(outputs, str(i))[0] == text_of(continuation(prompt, n))
    for slot in range(n_slots):
        bench.cached(slot)
