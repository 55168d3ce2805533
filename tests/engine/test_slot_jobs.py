"""Slots are saved, loaded and erased between requests (S31)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lsm.engine.engine import Engine
from lsm.engine.outputs import Cancelled, Ended, Output
from lsm.engine.slot_content import EraseSlot, LoadSlot, SaveSlot, SlotContent, SlotDone, SlotJob
from lsm.errors import InvalidRequest, Unavailable
from tests.engine.loaded import SAME_IN_ANY_BATCH, generate, loaded, run, submit
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, end, error, result, text_of, tokens

PROMPT = [3 + i % 7 for i in range(20)]
CLASSES = ("weights", "kv", "compute")


def done(outputs: list[Output], id: str) -> SlotDone:
    ended = end(outputs, id)
    assert isinstance(ended, Ended) and isinstance(ended.finish, SlotDone), ended
    return ended.finish


def ask(bench: Bench, job: SlotJob) -> SlotDone:
    bench.scheduler.submit(job)
    return done(bench.run(), job.id)


def content_of(bench: Bench, slot: int = 0) -> SlotContent:
    content = ask(bench, SaveSlot("save", slot)).content
    assert content is not None
    return content


def test_a_saved_slot_goes_on_in_another_one() -> None:
    """S31 acceptance: the identical prompt decodes one token."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=1, id_slot=0)
    loaded_slot = ask(bench, LoadSlot("load", 1, content_of(bench)))
    text, finish = bench.answer("b", PROMPT, max_tokens=3, id_slot=1)
    assert (loaded_slot.n_tokens, loaded_slot.n_resumable) == (20, 19)
    assert (finish.timings.cache_n, finish.timings.prompt_n, text) == (19, 1, text_of(continuation(PROMPT, 3)))


def test_an_erased_slot_holds_nothing() -> None:
    """S31: n_erased tokens."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=1)
    assert ask(bench, EraseSlot("erase", 0)).n_tokens == 20
    assert bench.cached(0) == []


def test_a_job_waits_until_its_slot_is_idle_and_goes_before_the_next_request() -> None:
    """S31: busy slot: deferred until idle."""
    bench = Bench(n_slots=1)
    bench.submit("a", PROMPT, max_tokens=3)
    bench.scheduler.step()
    bench.scheduler.submit(SaveSlot("save", 0))
    bench.submit("b", [20, 21], max_tokens=1)
    outputs = bench.run()
    ends = [output.id for output in outputs if isinstance(output, Ended)]
    assert ends == ["a", "save", "b"]
    assert done(outputs, "save").n_tokens == 22


def test_a_slot_that_does_not_exist_is_refused() -> None:
    """S31: 400 Invalid slot ID."""
    bench = Bench()
    for slot in (-1, 2):
        bench.scheduler.submit(EraseSlot("erase", slot))
        refused = error(bench.scheduler.outputs(), "erase")
        assert isinstance(refused, InvalidRequest) and refused.message == "Invalid slot ID"


def test_a_job_that_waits_can_be_cancelled_and_failed() -> None:
    """P2: every wait has its exits."""
    bench = Bench(n_slots=1)
    bench.submit("a", PROMPT, max_tokens=30)
    bench.scheduler.step()
    bench.scheduler.submit(SaveSlot("one", 0))
    bench.scheduler.submit(SaveSlot("two", 0))
    bench.scheduler.cancel("one")
    bench.scheduler.fail_all(Unavailable("stopping"))
    outputs = bench.scheduler.outputs()
    assert isinstance(end(outputs, "one"), Cancelled)
    assert isinstance(error(outputs, "two"), Unavailable)
    assert not bench.scheduler.has_work


REFUSED = {
    "longer than the slot": ([3] * 65, None),
    "a token that is not in the vocabulary": ([3, 28], None),
    "a negative token": ([3, -7], None),
    "a state of other bytes": (PROMPT, np.zeros(64, np.uint8)),
}


@pytest.mark.parametrize(("ids", "state"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_and_changes_nothing(ids: list[int], state: np.ndarray | None) -> None:
    """S31: validated before; what the slot held stays, unlike llama-server's, which is cleared."""
    bench = Bench()
    bench.answer("a", PROMPT, max_tokens=1)
    content = content_of(bench)
    bad = replace(content, held=replace(content.held, tokens=np.array(ids, np.int32)), state=content.state if state is None else state)
    if state is not None:
        bad.state[8:] = 255
    bench.scheduler.submit(LoadSlot("load", 0, bad))
    assert isinstance(error(bench.run(), "load"), InvalidRequest)
    assert bench.cached(0) == PROMPT


def test_a_state_of_fewer_tokens_than_it_says_is_refused() -> None:
    """F11: positions that do not belong to the tokens are noticed before they do harm."""
    bench = Bench()
    bench.answer("a", PROMPT[:4], max_tokens=1, id_slot=0)
    bench.answer("b", PROMPT, max_tokens=1, id_slot=1)
    bad = replace(content_of(bench, 1), state=content_of(bench, 0).state)
    bench.scheduler.submit(LoadSlot("load", 0, bad))
    assert isinstance(error(bench.run(), "load"), InvalidRequest)
    assert bench.cached(0) == PROMPT[:4]


def test_a_memory_that_cannot_go_back_says_what_the_same_prompt_would_cost() -> None:
    """G1: restore success implies that the next identical prompt has cached >= n_restored - 1, else the reply says less."""
    bench = Bench(ScriptedDecoder(is_recurrent=True), can_trim=False)
    bench.answer("a", PROMPT, max_tokens=1, id_slot=0)
    assert ask(bench, LoadSlot("load", 1, content_of(bench))).n_resumable == 0


@pytest.fixture(params=["tiny_llama", "tiny_gemma3", "tiny_mamba", "tiny_jamba"])
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def job(engine: Engine, job: SlotJob) -> SlotDone:
    engine.submit(job)
    return done(run(engine), job.id)


LONG = np.array([3 + i * 7 % 300 for i in range(90)], np.int32)


def test_every_kind_of_memory_goes_into_another_process(model: Path, owner: int) -> None:
    """S31, G5: saved with its snapshots, restored after a sleep into an engine that never saw the prompt; the same answer as without."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        expected = generate(engine, LONG, max_tokens=5)
        submit(engine, "a", LONG, max_tokens=5, id_slot=1)
        run(engine)
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)
        saved = job(engine, SaveSlot("save", 1))
    assert saved.content is not None and saved.n_tokens == 94
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        assert job(engine, LoadSlot("load", 2, saved.content)).n_tokens == 94
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)
        submit(engine, "b", LONG, max_tokens=5, id_slot=2)
        outputs = run(engine)
    assert tokens(outputs, "b") == expected
    assert result(outputs, "b")[1].timings.cache_n >= len(LONG) - 4


def test_the_state_of_another_model_is_refused(tiny_llama: Path, tiny_gemma3: Path, owner: int) -> None:
    """S31: foreign-model files are refused before anything changes."""
    with loaded(tiny_gemma3, owner) as engine:
        submit(engine, "a", LONG, max_tokens=1, id_slot=0)
        run(engine)
        foreign = job(engine, SaveSlot("save", 0)).content
    assert foreign is not None
    with loaded(tiny_llama, owner) as engine:
        submit(engine, "a", LONG[:50], max_tokens=1, id_slot=0)
        run(engine)
        engine.submit(LoadSlot("load", 0, foreign))
        assert isinstance(error(run(engine), "load"), InvalidRequest)
        submit(engine, "b", LONG[:50], max_tokens=1, id_slot=0)
        assert result(run(engine), "b")[1].timings.cache_n == 49


def test_a_slot_tells_of_the_request_in_it_and_then_of_the_last_one() -> None:
    """B.1 /slots: what was asked, and how far it is."""
    bench = Bench()
    bench.submit("a", PROMPT, script=[5, 1, 6], max_tokens=3)
    assert bench.scheduler.slots()[0].options is None
    for _ in range(4):
        bench.scheduler.step()
    info = bench.scheduler.slots()[0]
    assert (info.state, info.n_decoded, info.has_new_line) == ("generating", 2, True)
    bench.run()
    info = bench.scheduler.slots()[0]
    assert (info.state, info.request_id, info.n_prompt_tokens, info.n_decoded) == ("idle", "a", 20, 3)
    assert info.options is not None and info.options.max_tokens == 3


def test_a_slot_that_was_put_away_is_saved_as_it_was() -> None:
    """G6: what an idle slot held is not lost because it is in host memory: a file of no tokens would be a loss that nobody reports."""
    bench = Bench(n_slots=2, cache_limit_bytes=1 << 20, cache_limit_tokens=1000, cache_idle_slots=True)
    bench.answer("a", PROMPT, max_tokens=1, id_slot=0)
    bench.answer("b", [20, 21, 22], max_tokens=1, id_slot=1)
    assert bench.cached(0) == []
    assert content_of(bench).held.tokens.tolist() == PROMPT
    assert bench.cached(0) == PROMPT
    bench.answer("c", [20, 21, 22], max_tokens=1, id_slot=1)
    ask(bench, EraseSlot("erase", 0))
    assert content_of(bench).held.tokens.tolist() == []


def test_a_slot_tells_what_was_asked_and_answered() -> None:
    """B.1: `prompt` and `generated` of /slots, of the request in it or of the last one."""
    bench = Bench()
    text, _ = bench.answer("a", PROMPT, max_tokens=3, id_slot=0)
    told, other = bench.scheduler.slots()[:2]
    assert list(told.prompt) == list(PROMPT) and "".join(told.written) == text
    assert list(other.prompt) == list(other.written) == []
