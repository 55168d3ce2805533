"""Sequences that are copied, shifted and cut in real memories: tiny random models, one for each kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lsm.batching import Batching
from lsm.engine.engine import Engine
from lsm.engine.shift import shift_range
from lsm.errors import ConfigError, ContextExceeded
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.values import Sampling
from tests.engine.loaded import GREEDY, SAME_IN_ANY_BATCH, generate, loaded, run, step_through, submit
from tests.engine.scripted import error, result, tokens

PROMPT = "it is in the ering on of to and"
CLASSES = ("weights", "kv", "compute")


@pytest.fixture(params=("tiny_llama", "tiny_gemma3", "tiny_mamba"))
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.mark.parametrize("kv_unified", [True, False])
def test_each_choice_is_the_answer_of_a_request_of_its_own(model: Path, owner: int, kv_unified: bool) -> None:
    """D.2 n > 1: the prompt is shared; choice i answers as a request with the seed counted up by i."""
    sampling = Sampling(temperature=1.5, seed=42, ignore_eos=True)
    with loaded(model, owner, n_parallel=3, kv_unified=kv_unified, **SAME_IN_ANY_BATCH) as engine:
        submit(engine, "a", PROMPT, sampling, n=3, max_tokens=8)
        outputs = run(engine)
        choices = [tokens(outputs, "a", index) for index in range(3)]
        alone = [generate(engine, PROMPT, Sampling(temperature=1.5, seed=42 + i, ignore_eos=True), max_tokens=8) for i in range(3)]
    assert choices == alone
    assert len({tuple(choice) for choice in choices}) == 3 or model.stem == "gemma3", "this one has a token that it always draws"


@pytest.mark.parametrize("kv_unified", [True, False])
def test_choices_go_on_though_memory_left_in_their_middle(model: Path, owner: int, kv_unified: bool) -> None:
    """S9, S10: also between the copy of the prompt and the first batch after it."""

    def away_and_back(engine: Engine) -> None:
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)

    answers = []
    for between in (lambda engine: None, away_and_back):
        with loaded(model, owner, n_parallel=2, kv_unified=kv_unified) as engine:
            submit(engine, "a", PROMPT, GREEDY, n=2, max_tokens=6)
            outputs = step_through(engine, lambda engine=engine, between=between: between(engine))  # type: ignore[misc]
            answers.append([tokens(outputs, "a", index) for index in range(2)])
    assert answers[0] == answers[1]


def by_hand(path: Path, owner: int, n: int, n_ctx: int, n_keep: int) -> list[int]:
    """Greedy decoding over the native room alone, with a shift whenever the next token would find no position."""
    with (
        Model.load(path, owner) as model,
        Context(model, owner, n_ctx=n_ctx, n_seq_max=1, kv_unified=True, threads=1, threads_batch=1, flash_attn="off") as context,
    ):
        waiting = model.vocab.tokenize(PROMPT, True, True).tolist()
        answer: list[int] = []
        at = 0
        n_keep += model.vocab.add_bos
        while len(answer) < n:
            token = waiting.pop(0)
            logits = decode(context, 0, at, [token])
            at += 1
            if not waiting:
                logits[list(model.vocab.eog)] = -np.inf
                answer.append(int(logits.argmax()))
                waiting.append(answer[-1])
                if at + 1 >= n_ctx:
                    start, count = shift_range(at, n_ctx, n_keep, 0)
                    context.seq_rm(0, start, start + count)
                    context.seq_add(0, start + count, at, -count)
                    at -= count
        return answer


@pytest.mark.parametrize("n_keep", [0, 5])
def test_a_full_context_goes_on_as_the_memory_says(tiny_llama: Path, owner: int, n_keep: int) -> None:
    """D.2 context shift: token for token what the same shifts give by hand, several times over."""
    with loaded(tiny_llama, owner, n_ctx=256, n_parallel=1, batching=Batching(context_shift=True), flash_attn="off") as engine:
        n_ctx = engine.slots()[0].n_ctx
        submit(engine, "a", PROMPT, GREEDY, max_tokens=600, n_keep=n_keep)
        outputs = run(engine)
        finish = result(outputs, "a")[1]
    assert (finish.stop_type, finish.truncated, finish.completion_tokens) == ("limit", True, 600)
    assert tokens(outputs, "a") == by_hand(tiny_llama, owner + 1_000_000, 600, n_ctx, n_keep)


def test_a_chunk_that_moved_is_used(tiny_llama: Path, owner: int) -> None:
    """C.3 --cache-reuse: only what is new is decoded, and the answer is there."""
    with loaded(tiny_llama, owner, cache_reuse=4) as engine:
        ids = np.arange(10, 60, dtype=np.int32)
        submit(engine, "a", ids, GREEDY, max_tokens=4)
        run(engine)
        submit(engine, "b", np.concatenate([ids[:8], ids[20:50], ids[:2]]), GREEDY, max_tokens=4, n_cache_reuse=4)
        outputs = run(engine)
        finish = result(outputs, "b")[1]
    assert (finish.timings.cache_n, finish.timings.prompt_n, len(tokens(outputs, "b"))) == (38, 2, 4)


@pytest.mark.parametrize(
    ("setting", "flag"), [({"batching": Batching(context_shift=True)}, "--context-shift"), ({"cache_reuse": 8}, "--cache-reuse")]
)
def test_a_memory_that_cannot_shift_refuses_the_settings(tiny_mamba: Path, owner: int, setting: dict[str, object], flag: str) -> None:
    """D.2: not with non-shiftable memory; the message names the flag."""
    with pytest.raises(ConfigError, match=flag), loaded(tiny_mamba, owner, **setting):
        pass


def test_the_slot_has_its_own_limit(tiny_llama: Path, owner: int) -> None:
    """S18: np=2, N=64: a prompt of 80 tokens is refused with n_ctx 64."""
    with loaded(tiny_llama, owner, n_ctx=0, n_parallel=2, batching=Batching(n_ctx_per_slot=64)) as engine:
        assert [slot.n_ctx for slot in engine.slots()] == [64, 64]
        submit(engine, "a", np.full(80, 10, np.int32), GREEDY, max_tokens=1)
        refused = error(run(engine), "a")
    assert isinstance(refused, ContextExceeded)
    assert (refused.n_prompt_tokens, refused.n_ctx) == (80, 64)


def decode(context: Context, sequence: int, start: int, ids: list[int]) -> np.ndarray:
    n = len(ids)
    outputs = np.zeros(n, np.int8)
    outputs[-1] = 1
    positions = np.arange(start, start + n, dtype=np.int32)
    step = context.step(
        np.array(ids, np.int32), positions, np.full(n, sequence, np.int32), outputs, np.array([n - 1], np.int32), logits=True
    )
    assert step.code == 0 and step.logits is not None
    return step.logits[0]


@pytest.mark.parametrize("kv_unified", [True, False])
def test_a_state_can_be_read_right_after_a_copy(model: Path, owner: int, kv_unified: bool) -> None:
    """D.2: llama.cpp carries a copy out with the next batch; a state that is read before would be of what was there before."""
    with (
        Model.load(model, owner) as loaded_model,
        Context(loaded_model, owner, n_ctx=512, n_seq_max=3, kv_unified=kv_unified, threads=1, threads_batch=1) as context,
    ):
        decode(context, 1, 0, [30, 31, 32])
        decode(context, 0, 0, list(range(10, 26)))
        context.seq_rm(1)
        context.seq_cp(0, 1)
        copy = context.sequence_state(1)
        assert context.set_sequence_state(2, copy)
        assert np.allclose(decode(context, 2, 16, [40]), decode(context, 0, 16, [40]), atol=1e-5)


def test_a_state_can_be_read_right_after_a_shift(tiny_llama: Path, owner: int) -> None:
    """D.2: keys carry their positions; a state that is read before they have moved would answer otherwise."""
    with (
        Model.load(tiny_llama, owner) as model,
        Context(model, owner, n_ctx=512, n_seq_max=2, kv_unified=False, threads=1, threads_batch=1, flash_attn="off") as context,
    ):
        decode(context, 0, 0, list(range(10, 26)))
        context.seq_rm(0, 2, 8)
        context.seq_add(0, 8, 16, -6)
        state = context.sequence_state(0)
        assert context.set_sequence_state(1, state)
        assert np.allclose(decode(context, 0, 10, [40]), decode(context, 1, 10, [40]), atol=1e-5)
