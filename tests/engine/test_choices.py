"""Several answers to one prompt (`n`): one test for each sentence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.outputs import Cancelled, Ended, Failed
from lsm.errors import DecodeFailed, InvalidRequest, ServerError
from lsm.values import Sampling
from tests.engine.scripted import END, Bench, ScriptedDecoder, continuation, end, error, result, text_of, tokens

PROMPT = [5, 6, 7, 8]


def test_the_prompt_is_decoded_once_and_each_choice_goes_its_own_way() -> None:
    """D.2: child tasks share the prompt; each answer continues the prompt with its own tokens."""
    bench = Bench(n_slots=3, n_batch=16)
    bench.submit("a", PROMPT, script=[9], scripts=[[10], [11, END]], n=3, max_tokens=3)
    outputs = bench.run()
    assert bench.decoder.calls == [4, 3, 2]
    assert tokens(outputs, "a", 0) == [9, *continuation([*PROMPT, 9], 2)]
    assert tokens(outputs, "a", 1) == [10, *continuation([*PROMPT, 10], 2)]
    assert tokens(outputs, "a", 2) == [11, END]
    assert [result(outputs, "a", index)[1].stop_type for index in range(3)] == ["limit", "limit", "eos"]


@pytest.mark.parametrize("shares_cells", [True, False])
def test_each_slot_holds_the_prompt_and_its_answer(shares_cells: bool) -> None:
    """D.2: the copy of the sequence is whole, in one cache and in separate ones."""
    bench = Bench(ScriptedDecoder(shares_cells=shares_cells), shares_cells=shares_cells, n_slots=2)
    bench.submit("a", PROMPT, script=[9], scripts=[[10]], n=2, max_tokens=2)
    bench.run()
    assert (bench.cached(0), bench.cached(1)) == ([*PROMPT, 9], [*PROMPT, 10])
    assert bench.answer("b", [*PROMPT, 10, 3], max_tokens=1)[1].timings.cache_n == 5


def test_each_choice_has_the_counts_of_the_whole_prompt() -> None:
    """B.2 timings: what the prompt took, and was found in the cache, is the same for each."""
    bench = Bench()
    bench.answer("before", PROMPT[:2], max_tokens=0)
    bench.submit("a", PROMPT, n=2, max_tokens=2)
    outputs = bench.run()
    for index in (0, 1):
        finish = result(outputs, "a", index)[1]
        timings = finish.timings
        assert (finish.index, finish.prompt_tokens, finish.completion_tokens) == (index, 4, 2)
        assert (timings.cache_n, timings.prompt_n, timings.prompt_ms, timings.predicted_ms) == (2, 2, 1.0, 1.0)


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8, 9]), (-1, [-1, -1, -1]), (0xFFFFFFFE, [0xFFFFFFFE, 0, 1])])
def test_each_choice_has_its_own_seed(seed: int, seeds: list[int]) -> None:
    """B.2 n, seed: a given one is counted up; a random one is drawn for each."""
    bench = Bench(n_slots=3)
    bench.submit("a", PROMPT, n=3, max_tokens=1, sampling=Sampling(seed=seed))
    bench.run()
    assert [sampler.seed for sampler in bench.samplers] == seeds


def test_each_sampler_knows_the_prompt() -> None:
    """C.4 repeat_last_n: for each choice."""
    bench = Bench()
    bench.n_look_back = 2
    bench.submit("a", PROMPT, n=2, max_tokens=1)
    bench.run()
    assert [sampler.prompt_seen for sampler in bench.samplers] == [[7, 8], [7, 8]]


def test_a_choice_that_ends_frees_its_slot_for_another_request() -> None:
    """D.2: choices end one by one."""
    bench = Bench(n_slots=2)
    bench.submit("a", PROMPT, scripts=[[END]], n=2, max_tokens=6)
    bench.submit("b", [9, 9], max_tokens=1)
    bench.scheduler.step()
    bench.scheduler.step()
    outputs = bench.scheduler.outputs()
    assert isinstance(end(outputs, "a", 1), Ended)
    assert isinstance(end(outputs, "b"), Ended)
    assert [slot.state for slot in bench.scheduler.slots()] == ["generating", "idle"]


def test_it_waits_until_there_are_slots_enough_and_nobody_passes() -> None:
    """D.2 deferral: who needs several slots would wait for ever if others took each that gets free."""
    bench = Bench(n_slots=2)
    bench.submit("first", PROMPT, max_tokens=3)
    bench.scheduler.step()
    bench.submit("a", PROMPT, n=2, max_tokens=1)
    bench.submit("later", [9, 9], max_tokens=1)
    bench.scheduler.step()
    assert [slot.request_id for slot in bench.scheduler.slots()] == ["first", ""]
    assert bench.scheduler.counters().requests_waiting == 2
    ends = [output for output in bench.run() if isinstance(output, Ended)]
    assert [(output.id, output.finish.index) for output in ends] == [("first", 0), ("a", 0), ("a", 1), ("later", 0)]


def test_the_others_take_the_slots_that_were_not_used_for_the_longest_time() -> None:
    """D.2 slot choice: what was used last is most likely to be asked for again."""
    bench = Bench(n_slots=3)
    for slot, token in ((0, 10), (2, 12), (1, 11)):
        bench.answer(f"old {slot}", [token] * 4, max_tokens=1, id_slot=slot)
    bench.submit("a", [12] * 4, n=2, max_tokens=1)
    outputs = bench.run()
    assert [result(outputs, "a", index)[1].id_slot for index in (0, 1)] == [2, 0]


def test_it_may_ask_for_the_slot_of_the_first_choice() -> None:
    """D.2 id_slot: children cannot specify theirs."""
    bench = Bench(n_slots=2)
    bench.submit("a", PROMPT, n=2, id_slot=1, max_tokens=1)
    outputs = bench.run()
    assert [result(outputs, "a", index)[1].id_slot for index in (0, 1)] == [1, 0]


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
def test_a_cancel_ends_all_choices_in_every_state(n_steps: int) -> None:
    """D.2 cancel: in the queue, in the middle of the prompt, at its end, generating; one end is told; every slot is free."""
    bench = Bench(n_slots=2, n_batch=2)
    bench.submit("a", PROMPT, n=2)
    for _ in range(n_steps):
        bench.scheduler.step()
    bench.scheduler.cancel("a")
    outputs = bench.scheduler.outputs()
    assert isinstance(end(outputs, "a"), Cancelled)
    assert not bench.scheduler.has_work
    assert [slot.state for slot in bench.scheduler.slots()] == ["idle", "idle"]
    assert all(sampler.is_closed for sampler in bench.samplers)
    assert bench.answer("next", PROMPT, max_tokens=2)[0] == text_of(continuation(PROMPT, 2))


def test_a_slot_that_waited_in_vain_keeps_its_cache() -> None:
    """Machine slot, wait_other: nothing of its sequence was touched."""
    bench = Bench(n_slots=2, n_batch=2)
    bench.answer("old", [9, 9, 9], max_tokens=1, id_slot=1)
    bench.submit("a", PROMPT, n=2)
    bench.scheduler.step()
    bench.decoder.codes = [-3]
    bench.scheduler.step()
    assert isinstance(error(bench.scheduler.outputs(), "a"), DecodeFailed)
    assert (bench.cached(0), bench.cached(1)) == ([], [9, 9, 9])


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
def test_a_failure_ends_all_choices_and_is_told_once(n_steps: int) -> None:
    """P2: a choice that waits does not wait for ever when the one that decodes the prompt fails."""
    bench = Bench(n_slots=2, n_batch=2)
    bench.submit("a", PROMPT, n=2)
    for _ in range(n_steps):
        bench.scheduler.step()
    bench.scheduler.fail_all(ServerError("unloaded"))
    outputs = bench.scheduler.outputs()
    assert isinstance(end(outputs, "a"), Failed)
    assert not bench.scheduler.has_work
    assert [slot.state for slot in bench.scheduler.slots()] == ["idle", "idle"]


def test_a_choice_without_room_fails_its_siblings() -> None:
    """D.2 decode failures: the client asked for all of them."""
    bench = Bench(ScriptedDecoder(n_cells=9), n_slots=2)
    bench.submit("a", PROMPT, n=2, script=[9], scripts=[[10]])
    failed = error(bench.run(), "a")
    assert failed.message == "Context size has been exceeded."
    assert bench.answer("next", PROMPT, max_tokens=2)[0] == text_of(continuation(PROMPT, 2))


@pytest.mark.parametrize("scripts", [([9], [-1]), ([-1], [9]), ([9, -1], [10]), ([9], [10, -1]), ([9, 10, -1], [10, 11])])
@pytest.mark.parametrize("codes", [[], [1], [0, 1], [0, 0, 1]])
def test_a_choice_that_can_draw_nothing_fails_its_siblings(scripts: tuple[list[int], list[int]], codes: list[int]) -> None:
    """P13: also those later in the batch, in the same part of it or in another; other requests go on."""
    bench = Bench(n_slots=4, n_batch=16)
    bench.decoder.codes = codes
    bench.submit("a", PROMPT, n=2, script=scripts[0], scripts=scripts[1:])
    for id in ("b", "c"):
        bench.submit(id, [9, 9], max_tokens=5)
    outputs = bench.run()
    assert error(outputs, "a").message == "the script says so"
    assert [result(outputs, id)[0] for id in ("b", "c")] == [text_of(continuation([9, 9], 5))] * 2
    assert (bench.cached(0), bench.cached(1)) == ([], [])


@pytest.mark.parametrize(("options", "field"), [({"n": 0}, "n"), ({"n": 3}, "n"), ({"n": 2, "max_tokens": 0}, "n")])
def test_a_number_that_cannot_be_is_refused(options: dict[str, object], field: str) -> None:
    """B.2 n: hard, 1 to the number of slots."""
    bench = Bench(n_slots=2)
    bench.submit("a", PROMPT, **options)
    refused = error(bench.run(), "a")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == field


Job = tuple[list[int], int, int]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.lists(st.integers(3, 5), min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.integers(3, 9),
)
def test_choices_are_the_answers_of_single_requests(jobs: list[Job], shares_cells: bool, is_recurrent: bool, n_batch: int) -> None:
    """D.2: whatever else is decoded beside them, on every kind of memory."""
    decoder = ScriptedDecoder(shares_cells=shares_cells, is_recurrent=is_recurrent)
    bench = Bench(decoder, shares_cells=shares_cells, n_slots=3, n_batch=n_batch)
    for i, (prompt, max_tokens, n) in enumerate(jobs):
        bench.submit(str(i), prompt, n=n, max_tokens=max_tokens)
    outputs = bench.run()
    for i, (prompt, max_tokens, n) in enumerate(jobs):
        for index in range(n):
            assert result(outputs, str(i), index)[0] == text_of(continuation(prompt, max_tokens))
    for slot in range(3):
        bench.cached(slot)
