"""Guesses in the scheduler: what they may change is the number of batches.  One test for each sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.outputs import Cancelled, Failed
from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import Ask
from lsm.values import Finish, Sampling
from tests.engine.scripted import END, Bench, ScriptedDecoder, continuation, end, error, next_token, result, text_of, tokens, with_media

PROMPT = [5, 6, 7, 8]


class Oracle:
    """Knows what the scripted model will say, and is wrong from a certain guess on."""

    def __init__(self, n: int = 3, n_right: int = 99) -> None:
        self.n, self.n_right = n, n_right
        self.asked: list[Ask] = []
        self.begun: list[int] = []
        self.accepts: list[int] = []

    @property
    def n_max(self) -> int:
        return self.n

    def begin(self, slot: int) -> None:
        self.begun.append(slot)

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        self.asked += asks
        return {ask.slot: self._guess(ask.tokens.tolist()) for ask in asks}

    def _guess(self, before: list[int]) -> Tokens:
        guess = continuation(before, self.n)
        wrong = [3 + (token - 2) % 25 for token in guess[self.n_right :]]
        return np.array([*guess[: self.n_right], *wrong], np.int32)

    def accepted(self, slot: int, n: int) -> None:
        self.accepts.append(n)


def memory(name: str) -> ScriptedDecoder:
    return ScriptedDecoder(is_recurrent=name == "recurrent", window=6 if name == "window" else 0)


def limits(name: str) -> dict[str, object]:
    return {"can_trim": name != "recurrent", "n_swa": 6 if name == "window" else 0, "n_ubatch": 4}


@pytest.mark.parametrize("n_right", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["attention", "window", "recurrent"])
def test_an_answer_is_the_same_with_guesses(name: str, n_right: int) -> None:
    """S19: right ones, wrong ones and half right ones, in every kind of memory; the cache holds the answer and nothing else."""
    bench = Bench(memory(name), drafters=[Oracle(3, n_right)], **limits(name))
    text, finish = bench.answer("a", PROMPT, max_tokens=12)
    assert text == text_of(continuation(PROMPT, 12))
    assert finish.stop_type == "limit" and finish.completion_tokens == 12
    cached = bench.cached(0)
    assert cached == [*PROMPT, *continuation(PROMPT, 12)][: len(cached)]
    assert len(cached) >= len(PROMPT) + 8


def test_right_guesses_save_batches_and_are_counted() -> None:
    """B.2 timings.draft_n, draft_n_accepted: of the guesses that were verified."""
    oracle = Oracle(3)
    bench = Bench(drafters=[oracle])
    _, finish = bench.answer("a", PROMPT, max_tokens=9)
    assert bench.decoder.calls == [4, 4, 4]
    assert (finish.timings.draft_n, finish.timings.draft_n_accepted) == (6, 6)
    counters = bench.scheduler.counters()
    assert (counters.draft_tokens, counters.draft_tokens_accepted, counters.drafts) == (6, 6, 2)
    assert counters.accepted_per_position == (2, 2, 2)
    assert oracle.accepts == [3, 3]


def test_wrong_guesses_are_counted_by_position() -> None:
    """B.1 spec_decode_num_accepted_tokens_per_pos_total."""
    bench = Bench(drafters=[Oracle(3, 1)])
    finish = bench.answer("a", PROMPT, max_tokens=7)[1]
    assert (finish.timings.draft_n, finish.timings.draft_n_accepted) == (7, 3)  # of the last three only one could be used
    assert bench.scheduler.counters().accepted_per_position == (3, 0, 0)


def test_no_more_is_guessed_than_can_be_used() -> None:
    """S19: neither beyond the tokens that were asked for, nor beyond the context."""
    oracle = Oracle(9)
    bench = Bench(drafters=[oracle], n_batch=16, n_ctx_slot=12)
    bench.answer("a", PROMPT, max_tokens=4)
    assert [ask.n_max for ask in oracle.asked] == [2]
    oracle.asked.clear()
    text, finish = bench.answer("b", PROMPT, cache_prompt=False)
    assert (text, finish.truncated) == (text_of(continuation(PROMPT, 8)), True)
    assert [ask.n_max for ask in oracle.asked] == [6]


@pytest.mark.parametrize("name", ["attention", "recurrent"])
def test_an_answer_may_end_within_the_guesses(name: str) -> None:
    """S19: by its end token or a stop word; what comes after it is not told."""
    script = [*continuation(PROMPT, 3), END]
    bench = Bench(memory(name), drafters=[Oracle(5)], **limits(name))
    bench.submit("a", PROMPT, script=script)
    outputs = bench.run()
    assert result(outputs, "a")[1].stop_type == "eos" and tokens(outputs, "a") == script
    stop = text_of(continuation(PROMPT, 4)[2:4])
    text, finish = Bench(memory(name), drafters=[Oracle(5)], **limits(name)).answer("b", PROMPT, stop=(stop,))
    assert (text, finish.stop_type) == (text_of(continuation(PROMPT, 2)), "word")


@pytest.mark.parametrize("n_right", [0, 2, 4])
@pytest.mark.parametrize("shifts", [True, False])
def test_a_full_context_ends_or_shifts_as_without_guesses(n_right: int, shifts: bool) -> None:
    """C.3 --context-shift: at the same token."""

    def answer(bench: Bench) -> tuple[str, Finish]:
        return bench.answer("a", PROMPT, max_tokens=20)

    settings = {"n_ctx_slot": 10, "context_shift": shifts, "can_shift": shifts, "n_slots": 1}
    plain, guessed = answer(Bench(**settings)), answer(Bench(drafters=[Oracle(4, n_right)], **settings))
    assert (guessed[0], guessed[1].truncated, guessed[1].stop_type) == (plain[0], plain[1].truncated, plain[1].stop_type)


def test_drafters_begin_anew_with_each_request_and_each_shift() -> None:
    """What a drafter has learnt of a text is of no use for another."""
    oracle = Oracle(1)
    bench = Bench(drafters=[oracle], n_ctx_slot=10, context_shift=True, can_shift=True, n_slots=1)
    bench.answer("a", PROMPT, max_tokens=3)
    assert oracle.begun == [0]
    bench.answer("b", PROMPT, max_tokens=12)
    assert oracle.begun == [0, 0, 0, 0]


def test_the_first_drafter_that_guesses_is_heard() -> None:
    """C.8 --spec-type: several kinds, in a fixed order."""
    silent, first, second = Oracle(0), Oracle(2), Oracle(2)
    Bench(drafters=[silent, first, second]).answer("a", PROMPT, max_tokens=4)
    assert (first.accepts, silent.accepts, second.asked) == ([2], [], [])


def test_guesses_leave_a_row_for_everybody() -> None:
    """P16: prompts go on beside slots with long guesses, and so do the other slots."""
    bench = Bench(drafters=[Oracle(20)], n_slots=3, n_batch=5)
    for id, prompt in (("a", [5]), ("b", [6]), ("c", [*PROMPT] * 3)):
        bench.submit(id, prompt, max_tokens=10)
    outputs = bench.run()
    assert tokens(outputs, "a") == continuation([5], 10)
    assert tokens(outputs, "c") == continuation(PROMPT * 3, 10)


def test_guesses_are_dropped_where_the_cache_has_no_room_for_them() -> None:
    """D.2: decode failures; the tokens themselves still find room."""
    bench = Bench(ScriptedDecoder(n_cells=7), drafters=[Oracle(6)], n_slots=1)
    text, finish = bench.answer("a", PROMPT, max_tokens=4)
    assert text == text_of(continuation(PROMPT, 4))
    assert finish.timings.draft_n == 0 or finish.timings.draft_n <= 2


def test_no_guesses_where_the_host_has_no_room_to_take_them_back() -> None:
    """S11: without a snapshot a recurrent memory could not go back."""
    decoder = memory("recurrent")
    decoder.no_room_for_states = True
    text, finish = Bench(decoder, drafters=[Oracle(3, 1)], **limits("recurrent")).answer("a", PROMPT, max_tokens=8)
    assert (text, finish.timings.draft_n) == (text_of(continuation(PROMPT, 8)), 0)


def test_a_snapshot_that_cannot_be_put_back_costs_time_and_no_token() -> None:
    """F6: prompt and answer are decoded again, in as many batches as it takes."""
    decoder = memory("recurrent")
    decoder.spoiled_states = True
    text, finish = Bench(decoder, drafters=[Oracle(3, 1)], **limits("recurrent")).answer("a", PROMPT * 3, max_tokens=8)
    assert text == text_of(continuation(PROMPT * 3, 8))
    assert finish.timings.draft_n > 0


def test_the_way_back_of_a_guess_is_not_that_of_a_prompt() -> None:
    """S11: a snapshot of before the guesses is of one answer; the slot may hold another text by the next prompt."""
    bench = Bench(memory("recurrent"), drafters=[Oracle(3)], n_slots=1, **limits("recurrent"))
    bench.answer("a", PROMPT, max_tokens=9)
    assert bench.scheduler.pool.slots[0].mark is None
    bench.decoder.codes = [0, 1]  # the guesses are dropped
    bench.answer("b", PROMPT, max_tokens=3, cache_prompt=False)
    other = [9, 9, 9, 9, 9, 9, 9, 9]
    bench.answer("c", other, max_tokens=1)
    assert bench.answer("d", [*other[:7], 5, 5], max_tokens=3)[0] == text_of(continuation([*other[:7], 5, 5], 3))


def test_media_that_left_with_a_guess_fail_the_request() -> None:
    """Images are not encoded again in the middle of an answer."""
    decoder = memory("recurrent")
    decoder.spoiled_states = True
    bench = Bench(decoder, drafters=[Oracle(3, 1)], **limits("recurrent"))
    prompt, media = with_media([5, 6], ("image", 3), [7])
    bench.submit("a", prompt, media=media, max_tokens=8)
    assert "holds media" in error(bench.run(), "a").message


def test_media_are_no_part_of_what_is_guessed_from() -> None:
    """S5: only text can be guessed."""
    oracle = Oracle(1)
    prompt, media = with_media([5, 6], ("image", 3), [7])
    bench = Bench(drafters=[oracle])
    bench.submit("a", prompt, media=media, max_tokens=3)
    bench.run()
    assert not oracle.asked[0].is_text and oracle.asked[0].tokens.min() >= 0


def test_choices_are_guessed_for_one_by_one() -> None:
    """B.2 n: each slot has its own guesses."""
    bench = Bench(drafters=[Oracle(2)], n_slots=2)
    bench.submit("a", PROMPT, script=[9], scripts=[[10]], n=2, max_tokens=5)
    outputs = bench.run()
    for index, first in enumerate((9, 10)):
        assert tokens(outputs, "a", index) == [first, *continuation([*PROMPT, first], 4)]
        assert result(outputs, "a", index)[1].timings.draft_n_accepted > 0


def test_each_token_of_a_guess_has_its_probability() -> None:
    """B.2 n_probs: told once for each token, in order."""
    bench = Bench(drafters=[Oracle(3)])
    bench.submit("a", PROMPT, max_tokens=5)
    bench.samplers[0].tells = True
    outputs = bench.run()
    told = [prob.chosen.token for output in outputs if hasattr(output, "text") for prob in output.text.probs]
    assert told == continuation(PROMPT, 5)


def test_a_cancel_between_batches_leaves_what_was_right() -> None:
    """D.2: cancel in every state."""
    bench = Bench(drafters=[Oracle(3, 1)])
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    bench.scheduler.step()
    bench.scheduler.cancel("a")
    assert isinstance(end(bench.scheduler.outputs(), "a"), Cancelled)
    assert bench.cached(0) == [*PROMPT, *continuation(PROMPT, 2)]


def test_a_failed_batch_with_guesses_fails_the_request() -> None:
    """D.2: "Compute error."; nothing of the sequence is kept."""
    bench = Bench(drafters=[Oracle(3)])
    bench.submit("a", PROMPT)
    bench.scheduler.step()
    bench.decoder.codes = [-3]
    assert isinstance(end(bench.run(), "a"), Failed)
    assert bench.cached(0) == []


def test_slots_say_whether_guesses_are_made() -> None:
    """B.1 /slots speculative."""
    assert [Bench(drafters=drafters).scheduler.slots()[0].is_speculative for drafters in ([Oracle()], [])] == [True, False]


@pytest.mark.parametrize(("rates", "accepted"), [((0.0, 0.0, 0.0), 0), ((1.0, 1.0, 1.0), 6)])
def test_synthetic_acceptance_takes_or_refuses_whatever_was_guessed(rates: tuple[float, ...], accepted: int) -> None:
    """S19: rates of 0: the answer is that without guesses.  Rates of 1: every guess is part of the answer."""
    bench = Bench(drafters=[Oracle(3, 0)], synthetic_rates=rates)
    bench.submit("a", PROMPT, max_tokens=9, sampling=Sampling(seed=1))
    outputs = bench.run()
    assert result(outputs, "a")[1].timings.draft_n_accepted == accepted
    assert (tokens(outputs, "a") == continuation(PROMPT, 9)) == (accepted == 0)


@pytest.mark.parametrize("name", ["attention", "recurrent"])
def test_synthetic_acceptance_is_the_same_for_the_same_seed(name: str) -> None:
    """S19: deterministic for a seed, in every kind of memory: a replay throws no die again."""

    def counts(seed: int) -> tuple[int, int, list[int]]:
        bench = Bench(memory(name), drafters=[Oracle(3, 0)], synthetic_rates=(0.7, 0.5, 0.2), **limits(name))
        bench.submit("a", PROMPT, max_tokens=40, sampling=Sampling(seed=seed))
        outputs = bench.run()
        timings = result(outputs, "a")[1].timings
        return timings.draft_n, timings.draft_n_accepted, tokens(outputs, "a")

    assert counts(7) == counts(7)
    assert len({counts(seed)[1] for seed in range(6)}) > 1


def test_a_guessed_end_never_counts_as_right() -> None:
    """S19: a drafted token that ends the answer is refused, and the target's is told."""

    class Ender(Oracle):
        def _guess(self, before: list[int]) -> Tokens:
            return np.array([next_token(before), END, END], np.int32)

    bench = Bench(drafters=[Ender(3)], synthetic_rates=(1.0, 1.0, 1.0), eog=frozenset({END}))
    text, finish = bench.answer("a", PROMPT, max_tokens=7, sampling=Sampling(seed=1))
    assert (text, finish.timings.draft_n_accepted) == (text_of(continuation(PROMPT, 7)), 3)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_guessed_and_whoever_comes_and_goes(data: st.DataObject) -> None:
    """S19: every answer is that of the model alone, in every kind of memory, with several slots and small batches."""
    name = data.draw(st.sampled_from(["attention", "window", "recurrent"]))
    oracle = Oracle(data.draw(st.integers(1, 6)))
    bench = Bench(memory(name), drafters=[oracle], n_batch=data.draw(st.integers(3, 9)), n_slots=3, **limits(name))
    prompts = data.draw(st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=12), min_size=1, max_size=5))
    for i, prompt in enumerate(prompts):
        bench.submit(str(i), prompt, max_tokens=data.draw(st.integers(1, 9)))
    outputs = []
    while bench.scheduler.has_work:
        oracle.n_right = data.draw(st.integers(0, 6))
        bench.scheduler.step()
        outputs += bench.scheduler.outputs()
    for i, prompt in enumerate(prompts):
        finish = result(outputs, str(i))[1]
        assert tokens(outputs, str(i)) == continuation(prompt, finish.completion_tokens)
