"""What a request may hear on the way, and how batches are filled: one test for each sentence."""

from __future__ import annotations

from lsm.engine.outputs import Piece, Prefilled
from tests.engine.scripted import Bench, continuation, error, result, text_of

PROMPT = [5, 6, 7, 8]


def test_progress_of_the_prompt_is_told_on_request() -> None:
    """B.2 return_progress: at the start, and after each batch; what was in the cache counts as done."""
    bench = Bench(n_batch=3)
    bench.answer("before", PROMPT, max_tokens=1)
    bench.submit("a", [*PROMPT, *[9] * 5], max_tokens=2, return_progress=True)
    told = [output.progress for output in bench.run() if isinstance(output, Prefilled)]
    assert [(p.total, p.cache, p.processed, p.time_ms) for p in told] == [(9, 4, 4, 0.0), (9, 4, 7, 1.0), (9, 4, 9, 2.0)]


def test_progress_is_not_told_to_others() -> None:
    """B.2 return_progress: off by default."""
    bench = Bench()
    bench.submit("a", PROMPT, max_tokens=2)
    assert not any(isinstance(output, Prefilled) for output in bench.run())


def test_each_text_has_the_timings_so_far_on_request() -> None:
    """B.2 timings_per_token."""
    bench = Bench()
    bench.submit("a", PROMPT, max_tokens=3, timings_per_token=True)
    bench.submit("b", PROMPT, max_tokens=3)
    pieces = [output for output in bench.run() if isinstance(output, Piece)]
    assert [piece.text.timings and piece.text.timings.predicted_n for piece in pieces if piece.id == "a"] == [1, 2, 3]
    assert [piece.text.timings for piece in pieces if piece.id == "b"] == [None] * 3


def test_without_continuous_batching_a_prompt_waits_for_the_answers() -> None:
    """C.3 --no-cont-batching: a batch has tokens of answers or prompts, not both."""
    bench = Bench(n_batch=8, cont_batching=False)
    bench.submit("a", PROMPT, max_tokens=4)
    bench.scheduler.step()
    bench.submit("b", [9] * 3, max_tokens=2)
    outputs = bench.run()
    assert bench.decoder.calls == [4, 1, 1, 1, 3, 1]
    assert result(outputs, "b")[0] == text_of(continuation([9] * 3, 2))


def test_batches_that_stay_empty_end_the_requests() -> None:
    """D.2: more than 3 empty batches are a fault; upstream aborts, here the requests fail and the engine goes on."""
    bench = Bench()
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    slot = bench.scheduler.pool.order[0]
    assert slot.request is not None
    slot.request.sampled, slot.machine = None, Waiting()  # as nothing does
    for n_steps in range(4):
        assert bench.scheduler.has_work, n_steps
        bench.scheduler.step()
    assert "stays empty" in error(bench.scheduler.outputs(), "a").message
    assert not bench.scheduler.has_work


class Waiting:
    """A machine that waits whatever is told to it."""

    state = "wait_other"

    def fire(self, event: str, **facts: bool) -> tuple[str, ...]:
        return ()

    def close(self) -> None: ...
