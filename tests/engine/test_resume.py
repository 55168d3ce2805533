"""S11 on real memories: sliding windows, recurrent states, hybrids go back to snapshots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lsm.engine.engine import Engine
from lsm.keeping import Keeping
from lsm.values import Timings
from tests.engine.loaded import SAME_IN_ANY_BATCH, generate, loaded, run, submit
from tests.engine.scripted import result, tokens

CLASSES = ("weights", "kv", "compute")
MODELS = ("tiny_gemma3", "tiny_mamba", "tiny_jamba")
N_UBATCH = 32
FIRST = np.array([3 + i * 7 % 300 for i in range(150)], np.int32)
SECOND = np.array([*FIRST[:148], *[11 + i * 5 % 300 for i in range(60)]], np.int32)  # longer, and with another end


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def asked(engine: Engine, prompt: np.ndarray, **options: object) -> tuple[list[int], Timings]:
    submit(engine, "one", prompt, **options)
    outputs = run(engine)
    return tokens(outputs, "one"), result(outputs, "one")[1].timings


def test_a_longer_prompt_resumes_near_the_end_of_the_first(model: Path, owner: int) -> None:
    """S11 acceptance: cache_n >= n_first - 4, and the answer of a model that never saw the first prompt."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        expected = generate(engine, SECOND, max_tokens=6)
        asked(engine, FIRST, max_tokens=40)
        answer, timings = asked(engine, SECOND, max_tokens=6)
    assert timings.cache_n >= len(FIRST) - 4
    assert answer == expected


def test_the_first_prompt_again_resumes_as_well(model: Path, owner: int) -> None:
    """F13: the same prompt a second time, on a memory that cannot go back one token."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        first, _ = asked(engine, FIRST, max_tokens=40)
        again, timings = asked(engine, FIRST, max_tokens=40)
    assert again == first
    assert len(FIRST) - 4 <= timings.cache_n < len(FIRST)


def test_the_first_act_after_a_wake_is_to_go_back(model: Path, owner: int) -> None:
    """S6: a snapshot is put back, and one is taken, right after the KV cache came back."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        expected = generate(engine, SECOND, max_tokens=6)
        asked(engine, FIRST, max_tokens=40)
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)
        answer, timings = asked(engine, SECOND, max_tokens=6)
    assert timings.cache_n >= len(FIRST) - 4
    assert answer == expected


def test_memory_may_leave_between_any_two_batches(model: Path, owner: int) -> None:
    """S6, S9: away and back after every step of both prompts, snapshots included."""
    with loaded(model, owner, **SAME_IN_ANY_BATCH) as engine:
        expected = generate(engine, SECOND, max_tokens=6)
        for prompt in (FIRST, SECOND):
            submit(engine, "one", prompt, max_tokens=6)
            outputs = []
            while engine.has_work:
                engine.step()
                outputs += engine.outputs()
                engine.memory.release(*CLASSES)
                engine.memory.restore(*CLASSES)
    assert tokens(outputs, "one") == expected
    assert result(outputs, "one")[1].timings.cache_n >= len(FIRST) - 4


def test_without_snapshots_all_is_decoded_again(tiny_mamba: Path, owner: int) -> None:
    """S11: --ctx-checkpoints 0."""
    with loaded(tiny_mamba, owner, keeping=Keeping(n_ctx_checkpoints=0)) as engine:
        asked(engine, FIRST, max_tokens=4)
        assert asked(engine, SECOND, max_tokens=1)[1].cache_n == 0


def test_plain_attention_takes_none(tiny_llama: Path, owner: int) -> None:
    """S11: only where the memory cannot go back by itself."""
    with loaded(tiny_llama, owner) as engine:
        asked(engine, FIRST, max_tokens=4)
        assert asked(engine, FIRST, max_tokens=1)[1].cache_n == len(FIRST) - 1
        assert engine.counters().checkpoints == 0


@pytest.mark.parametrize("name", ["tiny_llama", *MODELS])
def test_a_prompt_comes_back_from_host_memory(name: str, request: pytest.FixtureRequest, owner: int) -> None:
    """D.2, S6: a conversation whose slot was taken goes on; the device memory leaves after each request."""
    with loaded(request.getfixturevalue(name), owner, n_parallel=1, **SAME_IN_ANY_BATCH) as engine:
        expected = generate(engine, SECOND, max_tokens=6)
        for prompt in (FIRST, FIRST[::-1]):
            asked(engine, prompt, max_tokens=20)
            engine.memory.release(*CLASSES)
            engine.memory.restore(*CLASSES)
        answer, timings = asked(engine, SECOND, max_tokens=6)
    assert timings.cache_n >= len(FIRST) - 4
    assert answer == expected


@pytest.mark.slow
def test_gemma_resumes_within_four_tokens_and_a_ubatch(real_model: Callable[[str], Path], owner: int) -> None:
    """S11 acceptance: Gemma 3 270M; after an answer longer than the window has spare cells, the next prompt takes the answer back."""
    with loaded(real_model("gemma3"), owner, n_ctx=2048, n_batch=128, n_ubatch=64) as engine:
        text = " ".join(f"Item {i} costs {i * 7 % 13} coins." for i in range(70))
        first = engine.vocab.tokenize(f"<start_of_turn>user\n{text}<end_of_turn>\n<start_of_turn>model\n", True, True)
        assert len(first) > 600
        asked(engine, first, max_tokens=160)
        second = engine.vocab.tokenize(f"<start_of_turn>user\n{text} And item 99?<end_of_turn>\n<start_of_turn>model\n", True, True)
        n_common = int(np.argmin(first[: len(second)] == second[: len(first)]))
        timings = asked(engine, second, max_tokens=4)[1]
    assert n_common - (4 + 64) <= timings.cache_n <= n_common
