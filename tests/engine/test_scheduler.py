"""Continuous batching: one test for each sentence."""

from __future__ import annotations

import pytest

from lsm.engine.outputs import Cancelled
from lsm.errors import ContextExceeded, InvalidRequest
from lsm.values import Sampling
from tests.engine.scripted import (
    END,
    NEWLINE,
    Bench,
    continuation,
    end,
    error,
    result,
    text_of,
    texts,
    tokens,
)

PROMPT = [5, 6, 7, 8]


def test_the_answer_is_what_the_model_says() -> None:
    """B.2: text, tokens and counts of an answer agree."""
    bench = Bench()
    bench.submit("a", PROMPT, max_tokens=5)
    outputs = bench.run()
    text, finish = result(outputs, "a")
    assert tokens(outputs, "a") == continuation(PROMPT, 5)
    assert text == text_of(continuation(PROMPT, 5))
    assert (finish.stop_type, finish.truncated, finish.prompt_tokens, finish.completion_tokens) == ("limit", False, 4, 5)


def test_nothing_to_do_decodes_nothing() -> None:
    """D.2: no work, no batch."""
    bench = Bench()
    bench.scheduler.step()
    assert (bench.decoder.calls, bench.scheduler.outputs(), bench.scheduler.has_work) == ([], [], False)


def test_a_step_decodes_at_most_one_batch() -> None:
    """D.2: prompts within n_batch; a long one takes several steps."""
    bench = Bench(n_batch=8)
    bench.submit("a", [3] * 20, max_tokens=1)
    sizes = []
    while bench.scheduler.has_work:
        bench.scheduler.step()
        sizes.append(bench.decoder.calls[-1])
        assert len(bench.decoder.calls) == len(sizes)
    assert sizes == [8, 8, 4]


def test_a_generating_slot_goes_on_while_another_prompt_is_decoded() -> None:
    """D.2: generating slots first."""
    bench = Bench(n_batch=4)
    bench.submit("a", PROMPT, max_tokens=4)
    bench.scheduler.step()
    bench.submit("b", [3] * 9, max_tokens=1)
    outputs = bench.scheduler.outputs()
    for _ in range(3):
        bench.scheduler.step()
        outputs += bench.scheduler.outputs()
    assert bench.decoder.calls[1:] == [4, 4, 4]
    assert result(outputs, "a")[0] == text_of(continuation(PROMPT, 4))
    assert result(outputs, "b")[0] == text_of(continuation([3] * 9, 1))


def test_more_requests_than_slots_wait_and_are_all_served() -> None:
    """D.2: first come, first served."""
    bench = Bench(n_slots=2)
    prompts = {f"r{i}": [3 + i, 4, 5] for i in range(7)}
    for id, prompt in prompts.items():
        bench.submit(id, prompt, max_tokens=3)
    bench.scheduler.step()
    assert (bench.scheduler.counters().requests_processing, bench.scheduler.counters().requests_waiting) == (2, 5)
    outputs = bench.run()
    assert {id: result(outputs, id)[0] for id in prompts} == {id: text_of(continuation(prompt, 3)) for id, prompt in prompts.items()}
    assert [output.id for output in outputs if output == end(outputs, output.id)] == list(prompts)


def test_end_of_generation() -> None:
    """B.2 stop_type eos: its token counts, its text is not shown."""
    text, finish = Bench().answer("a", PROMPT, script=[9, 10, END], max_tokens=9)
    assert (text, finish.stop_type, finish.completion_tokens) == ("gh", "eos", 3)


def test_special_tokens_are_shown_on_request() -> None:
    """B.2 special."""
    assert Bench().answer("a", PROMPT, script=[9, END], special=True)[0] == "g<end>"


def test_the_end_of_generation_goes_before_a_stop_word() -> None:
    """B.2 stop_type: the model ended by itself, though its end was shown and asked for as a stop word."""
    text, finish = Bench().answer("a", PROMPT, script=[9, END], special=True, stop=("<end>",))
    assert (text, finish.stop_type, finish.stopping_word) == ("g", "eos", "")


def test_a_stop_word_ends_the_answer_before_itself() -> None:
    """B.2 stop: across tokens; stop_type word."""
    text, finish = Bench().answer("a", PROMPT, script=[9, 10, 11, 12, 13], stop=("zz", "ij"), max_tokens=9)
    assert (text, finish.stop_type, finish.stopping_word, finish.completion_tokens) == ("gh", "word", "ij", 4)


def test_text_held_for_a_stop_word_comes_at_the_end() -> None:
    """B.2 stop: what did not become a stop word is shown."""
    text, finish = Bench().answer("a", PROMPT, script=[9, 10], stop=("hx",), max_tokens=2)
    assert (text, finish.stop_type, finish.stopping_word) == ("gh", "limit", "")


def test_each_token_comes_exactly_once() -> None:
    """B.2 tokens: also those whose text was held back or cut off."""
    bench = Bench()
    bench.submit("a", PROMPT, script=[9, 10, 11, END], stop=("ix",), max_tokens=9)
    outputs = bench.run()
    assert tokens(outputs, "a") == [9, 10, 11, END]
    assert texts(outputs, "a") == "ghi"


def test_an_answer_that_fills_the_slot_is_truncated() -> None:
    """B.2: generation that reaches the slot's limit ends with stop_type limit, truncated."""
    bench = Bench(n_ctx_slot=10)
    text, finish = bench.answer("a", PROMPT)
    assert (finish.stop_type, finish.truncated, finish.completion_tokens) == ("limit", True, 6)
    assert text == text_of(continuation(PROMPT, 6))
    assert len(bench.cached(0)) == 9


def test_the_longest_prompt_leaves_one_position() -> None:
    """B.2: condition N >= slot n_ctx."""
    bench = Bench(n_ctx_slot=10)
    assert bench.answer("a", [3] * 9)[1].completion_tokens == 1
    bench.submit("b", [3] * 10)
    refused = error(bench.run(), "b")
    assert isinstance(refused, ContextExceeded)
    assert (refused.n_prompt_tokens, refused.n_ctx) == (10, 10)


def test_asked_for_no_tokens_it_only_fills_the_cache() -> None:
    """B.2 n_predict 0: the prompt is decoded, nothing is sampled, the next request finds it."""
    bench = Bench()
    text, finish = bench.answer("a", PROMPT, max_tokens=0)
    assert (text, finish.stop_type, finish.completion_tokens, finish.timings.prompt_n) == ("", "limit", 0, 4)
    assert bench.samplers == []
    assert bench.cached(0) == PROMPT
    assert bench.answer("b", [*PROMPT, 9], max_tokens=1)[1].timings.cache_n == 4


@pytest.mark.parametrize(
    ("prompt", "options", "field"),
    [
        ([], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([28], {}, "prompt"),
        (PROMPT, {"id_slot": 2}, "id_slot"),
        (PROMPT, {"id_slot": -2}, "id_slot"),
        (PROMPT, {"max_tokens": -2}, "max_tokens"),
        (PROMPT, {"t_max_predict_ms": -2}, "t_max_predict_ms"),
        (PROMPT, {"sampling": Sampling(samplers=("nonsense",))}, "samplers"),
        (PROMPT, {"sampling": Sampling(grammar="bad")}, "grammar"),
    ],
)
def test_a_bad_request_fails_alone_and_names_its_field(prompt: list[int], options: dict[str, object], field: str) -> None:
    """B.2, B.0: 400; the next request is served."""
    bench = Bench()
    bench.submit("good", PROMPT, max_tokens=2)
    bench.submit("bad", prompt, **options)
    outputs = bench.run()
    refused = error(outputs, "bad")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == field
    assert result(outputs, "good")[0] == text_of(continuation(PROMPT, 2))


def test_a_request_waits_for_the_slot_it_asked_for_and_others_pass() -> None:
    """D.2 explicit id_slot."""
    bench = Bench(n_slots=2)
    bench.submit("a", PROMPT, id_slot=1, max_tokens=3)
    bench.scheduler.step()
    bench.submit("b", PROMPT, id_slot=1, max_tokens=1)
    bench.submit("c", PROMPT, max_tokens=1)
    bench.scheduler.step()
    outputs = bench.scheduler.outputs()
    assert result(outputs, "c")[1].id_slot == 0
    assert result(bench.run(), "b")[1].id_slot == 1


def test_cancel_frees_the_slot_before_the_next_batch() -> None:
    """Design 6: cancel takes effect at the next batch; what was decoded stays."""
    bench = Bench(n_slots=1)
    bench.submit("a", PROMPT)
    bench.submit("b", PROMPT, max_tokens=1)
    for _ in range(3):
        bench.scheduler.step()
    bench.scheduler.cancel("a")
    calls = len(bench.decoder.calls)
    bench.scheduler.step()
    outputs = bench.scheduler.outputs()
    assert isinstance(end(outputs, "a"), Cancelled)
    assert result(outputs, "b")[1].timings.cache_n == 3
    assert bench.decoder.calls[calls:] == [1]
    assert bench.samplers[0].is_closed


def test_a_request_that_waits_can_be_cancelled() -> None:
    """D.2: cancel removes the request from the queue."""
    bench = Bench(n_slots=1)
    bench.submit("a", PROMPT, max_tokens=2)
    bench.scheduler.step()
    bench.submit("b", PROMPT)
    bench.scheduler.cancel("b")
    outputs = bench.run()
    assert isinstance(end(outputs, "b"), Cancelled)
    assert result(outputs, "a")[0] == text_of(continuation(PROMPT, 2))


def test_cancelling_what_has_ended_changes_nothing() -> None:
    """Machine request: cancel is ignored after the end."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=1)
    bench.scheduler.cancel("a")
    bench.scheduler.cancel("never heard of")
    assert bench.scheduler.outputs() == []


def test_the_time_limit_acts_at_the_end_of_a_line() -> None:
    """B.2 t_max_predict_ms: counted from the first token, looked at where a line ends."""
    script = [9, 10, NEWLINE, 11, 12, 13, 9, NEWLINE, 10]
    text, finish = Bench().answer("a", PROMPT, script=script, t_max_predict_ms=4, max_tokens=20)
    assert (text, finish.stop_type, finish.truncated) == ("gh\nijkg\n", "limit", False)


def test_penalties_are_told_what_the_prompt_ends_with() -> None:
    """C.4 repeat_last_n: the prompt counts."""
    bench = Bench()
    bench.n_look_back = 3
    bench.answer("a", PROMPT, max_tokens=2)
    assert bench.samplers[0].prompt_seen == [6, 7, 8]


def test_only_time_spent_in_batches_counts() -> None:
    """Timings: a pause between batches, for another model, does not count."""
    bench = Bench(n_batch=2)
    bench.submit("a", PROMPT, max_tokens=3)
    while bench.scheduler.has_work:
        bench.scheduler.step()
        bench.now_ns += 5_000_000_000
    timings = result(bench.scheduler.outputs(), "a")[1].timings
    assert (timings.prompt_n, timings.prompt_ms, timings.predicted_n, timings.predicted_ms) == (4, 2.0, 3, 2.0)


def test_counters_grow_with_the_work() -> None:
    """B.1 metrics."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=3)
    bench.answer("b", [*PROMPT, 9], max_tokens=1)
    counters = bench.scheduler.counters()
    assert (counters.prompt_tokens, counters.prompt_tokens_cached, counters.predicted_tokens) == (5, 4, 4)
    assert (counters.decode_calls, counters.busy_slots, counters.tokens_max) == (4, 4, 6)
    assert (counters.prompt_seconds, counters.predicted_seconds) == (0.002, 0.002)


def test_slots_tell_what_they_do() -> None:
    """B.1 slots."""
    bench = Bench(n_batch=3)
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    busy, idle = bench.scheduler.slots()
    assert (busy.state, busy.request_id, busy.n_prompt_tokens, busy.n_prompt_tokens_processed) == ("processing_prompt", "a", 4, 3)
    assert (idle.state, idle.request_id, idle.n_ctx) == ("idle", "", 64)
    bench.scheduler.step()
    bench.scheduler.step()
    assert (bench.scheduler.slots()[0].state, bench.scheduler.slots()[0].n_decoded) == ("generating", 2)


def test_machines_move_once_for_each_phase_and_never_for_a_token() -> None:
    """Design 8: 10 to 25 us for each event: per phase of a request, never per token."""
    bench = Bench(n_batch=3)
    bench.answer("a", PROMPT, max_tokens=20)
    assert [(fired.machine, fired.event) for fired in bench.fired] == [
        ("request", "start"),
        ("slot", "assign"),
        ("checkpoint", "match"),
        ("slot", "batch"),
        ("slot", "batch"),
        ("slot", "sampled"),
        ("request", "first_token"),
        ("request", "finish"),
        ("slot", "finish"),
    ]


def test_closing_lets_go_of_everything() -> None:
    """Engine close: samplers and machines of unfinished requests are given back; there is no more output."""
    bench = Bench(n_slots=1)
    bench.submit("a", PROMPT)
    bench.submit("b", PROMPT)
    bench.scheduler.step()
    bench.scheduler.outputs()
    bench.scheduler.close()
    assert all(sampler.is_closed for sampler in bench.samplers)
    assert (bench.scheduler.has_work, bench.scheduler.outputs()) == (False, [])
