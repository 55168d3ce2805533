"""What a failed decode means, and that the next request is served."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.outputs import Cancelled, Ended, Failed
from lsm.errors import DecodeFailed, ServerError, WakeFailed
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, end, error, result, text_of

PROMPT = [5, 6, 7, 8]


def test_a_full_cache_is_tried_with_half_the_batch() -> None:
    """D.2 decode failures: code 1: halve and retry; what is left comes whole again once a part has found room."""
    bench = Bench(n_batch=8)
    bench.decoder.codes = [1, 1]
    text, _ = bench.answer("a", [3] * 8, max_tokens=1)
    assert bench.decoder.calls == [8, 4, 2, 6]
    assert text == text_of(continuation([3] * 8, 1))


def test_an_idle_slot_makes_room_first() -> None:
    """D.2 decode failures: purge an idle slot, the least recently used, when all share the cache."""
    bench = Bench(ScriptedDecoder(n_cells=20), n_slots=3, n_batch=16)
    bench.answer("old", [3] * 8, max_tokens=1)
    bench.answer("new", [4] * 8, max_tokens=1)
    text, _ = bench.answer("a", [5] * 8, max_tokens=1)
    assert text == text_of(continuation([5] * 8, 1))
    assert (bench.cached(0), bench.cached(1), bench.cached(2)) == ([], [4] * 8, [5] * 8)
    assert bench.decoder.calls == [8, 8, 8, 8]


def test_an_idle_slot_with_a_cache_of_its_own_is_left_alone() -> None:
    """D.2 decode failures: clearing it would make no room."""
    bench = Bench(n_slots=2, shares_cells=False)
    bench.answer("a", [3] * 4, max_tokens=1)
    bench.decoder.codes = [1]
    bench.answer("b", [4] * 4, max_tokens=1)
    assert bench.cached(0) == [3] * 4


def test_without_room_for_one_token_its_request_fails_and_the_others_go_on() -> None:
    """D.2 decode failures: code 1 with one token: "Context size has been exceeded."; the room it leaves is for the others."""
    bench = Bench(ScriptedDecoder(n_cells=20), n_slots=2, n_batch=16)
    bench.submit("a", [3] * 8, max_tokens=12)
    bench.submit("b", [4] * 8, max_tokens=9)
    outputs = bench.run()
    failed = error(outputs, "a")
    assert isinstance(failed, DecodeFailed)
    assert failed.message == "Context size has been exceeded."
    assert result(outputs, "b")[0] == text_of(continuation([4] * 8, 9))


@pytest.mark.parametrize(("code", "message"), [(-1, "Invalid input batch."), (-2, "Compute error"), (-3, "Compute error"), (2, "aborted")])
def test_a_failed_computation_fails_the_requests_in_the_batch(code: int, message: str) -> None:
    """D.2 decode failures: what is in their sequences is unknown, so it is cleared; the engine serves on."""
    bench = Bench(n_slots=2, n_batch=16)
    bench.submit("a", PROMPT)
    bench.submit("b", [9] * 4)
    bench.submit("waiting", [10] * 4, max_tokens=2)
    bench.decoder.codes = [0, code]
    outputs = bench.run()
    for id in ("a", "b"):
        failed = error(outputs, id)
        assert isinstance(failed, DecodeFailed)
        assert message in failed.message
    bench.cached(0), bench.cached(1)
    text, finish = result(outputs, "waiting")
    assert (text, finish.timings.cache_n) == (text_of(continuation([10] * 4, 2)), 0)


def test_memory_that_is_away_is_a_failed_decode_and_not_a_crash() -> None:
    """Design 4: decoding while released is refused; the words of the native room are kept."""
    bench = Bench()
    bench.decoder.error = ServerError("the model's device memory is released")
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    failed = error(bench.scheduler.outputs(), "a")
    assert isinstance(failed, DecodeFailed)
    assert failed.message == "the model's device memory is released"
    bench.decoder.error = None
    assert bench.answer("b", PROMPT, max_tokens=2)[0] == text_of(continuation(PROMPT, 2))


def test_all_requests_can_be_failed_at_once() -> None:
    """S7: a wake that fails ends those who wait and those who run; the next is served."""
    bench = Bench(n_slots=1)
    bench.submit("runs", PROMPT)
    bench.submit("waits", PROMPT)
    bench.scheduler.step()
    bench.scheduler.fail_all(WakeFailed("no memory"))
    outputs = bench.scheduler.outputs()
    assert isinstance(error(outputs, "runs"), WakeFailed)
    assert isinstance(error(outputs, "waits"), WakeFailed)
    assert bench.answer("next", PROMPT, max_tokens=2)[0] == text_of(continuation(PROMPT, 2))


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 5)),
        st.tuples(st.just("cancel"), st.integers(0, 12)),
        st.tuples(st.just("code"), st.sampled_from([1, 1, 1, -1, -2, 2])),
        st.tuples(st.just("step"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.integers(12, 60), st.integers(1, 3))
def test_every_request_ends_exactly_once_whatever_happens(steps: list[Step], n_cells: int, n_slots: int) -> None:
    """Machine request: exactly one of done, failed, cancelled; a finished answer is right; slots know what is in the cache."""
    bench = Bench(ScriptedDecoder(n_cells=n_cells), n_slots=n_slots, n_ctx_slot=12)
    asked: dict[str, tuple[list[int], int]] = {}
    outputs = []
    for kind, value in steps:
        if kind == "submit":
            id, prompt = f"r{len(asked)}", [3 + value] * (value + 1)
            asked[id] = (prompt, value)
            bench.submit(id, prompt, max_tokens=value)
        elif kind == "cancel":
            bench.scheduler.cancel(f"r{value}")
        elif kind == "code":
            bench.decoder.codes.append(value)
        else:
            for _ in range(value):
                bench.scheduler.step()
        for slot in range(n_slots):
            bench.cached(slot)
    outputs = bench.run()
    for id, (prompt, n) in asked.items():
        last = end(outputs, id)
        assert isinstance(last, Ended | Failed | Cancelled)
        if isinstance(last, Ended):
            assert result(outputs, id)[0] == text_of(continuation(prompt, n))
    assert all(info.state == "idle" for info in bench.scheduler.slots())
    assert all(sampler.is_closed for sampler in bench.samplers)
