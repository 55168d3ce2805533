"""Embeddings of real computations: an encoder without a cache, a causal model with one, a reranker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from lsm.engine.engine import Engine
from lsm.engine.outputs import Ended, Job
from lsm.errors import ContextExceeded, NotSupported, ServerError
from lsm.tuning import Computing
from lsm.values import Embedding, Options
from tests.engine.loaded import GREEDY, SAME_IN_ANY_BATCH, generate, loaded, run, submit
from tests.engine.scripted import end, error, tokens
from tests.tiny_modes import N_CTX, N_EMBD, write_bert

INPUTS = ([1, 5, 6, 7], [1, 8, 9], [1] + [10 + i % 200 for i in range(25)])
CLASSES = ("weights", "kv", "compute")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("tiny") / "bert.gguf")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("tiny") / "rank.gguf", pooling=gguf.PoolingType.RANK)


def ask(engine: Engine, id: str, prompt: list[int], norm: int = -1) -> None:
    engine.submit(Job(id, np.array(prompt, np.int32), Options(max_tokens=0, cache_prompt=False), embed=norm))


def embed(engine: Engine, *prompts: list[int], norm: int = -1) -> list[np.ndarray]:
    """The vectors of each prompt, (n, n_embd), of all at once."""
    for i, prompt in enumerate(prompts):
        ask(engine, str(i), prompt, norm)
    outputs = run(engine)
    ends = [end(outputs, str(i)) for i in range(len(prompts))]
    assert all(isinstance(ended, Ended) and isinstance(ended.finish, Embedding) for ended in ends), ends
    return [ended.finish.vectors for ended in ends]  # type: ignore[union-attr]


def embedding(path: Path, owner: int, **settings: Any) -> Any:
    pooling = settings.pop("pooling", None)
    return loaded(path, owner, computing=Computing(embeddings=True, pooling=pooling), **(SAME_IN_ANY_BATCH | settings))


@pytest.mark.parametrize("kv_unified", [True, False])
def test_each_pooling_follows_from_the_vectors_of_the_tokens(tiny_llama: Path, owner: int, kv_unified: bool) -> None:
    """C.2 --pooling: mean, the first token's, the last one's; of inputs of different length in one go, in either kind of cache."""
    settings = {"kv_unified": kv_unified, "n_parallel": 4, "n_ctx": 1024}
    with embedding(tiny_llama, owner, pooling="none", **settings) as engine:
        each = embed(engine, *INPUTS)
    assert [rows.shape for rows in each] == [(len(prompt), 128) for prompt in INPUTS]
    for pooling, pool in POOLS.items():
        with embedding(tiny_llama, owner, pooling=pooling, **settings) as engine:
            for vectors, rows in zip(embed(engine, *INPUTS), each, strict=True):
                np.testing.assert_allclose(vectors, [pool(rows)], atol=2e-3)


POOLS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}


def test_an_encoder_sees_the_whole_input(bert: Path, owner: int) -> None:
    """B.5: the vector of a text is the same alone and beside others, and its first token knows of its last."""
    with embedding(bert, owner) as engine:
        together = embed(engine, *INPUTS)
        alone = [embed(engine, prompt)[0] for prompt in INPUTS]
    for one, other in zip(together, alone, strict=True):
        assert one.shape == (1, N_EMBD)
        np.testing.assert_allclose(one, other, atol=1e-5)
    with embedding(bert, owner, pooling="cls") as engine:
        first, second = embed(engine, [1, 5, 6], [1, 5, 7])
    assert not np.allclose(first, second, atol=1e-3)


def test_an_input_must_fit_one_computation_of_an_encoder(bert: Path, owner: int) -> None:
    """B.5: the message has both numbers; the next input is served."""
    with embedding(bert, owner) as engine:
        ask(engine, "large", [5] * 33)
        failed = error(run(engine), "large")
        assert isinstance(failed, ServerError) and "input (33 tokens)" in failed.message and "batch size: 32" in failed.message
        assert embed(engine, [5] * 32)[0].shape == (1, N_EMBD)


def test_a_cache_lets_the_last_token_stand_for_a_long_input(tiny_llama: Path, owner: int) -> None:
    """B.5: what the pooling allows is computed in parts, with the same result."""
    prompt = [1] + [10 + i % 200 for i in range(90)]
    with embedding(tiny_llama, owner, pooling="last", n_ubatch=32) as engine:
        [parts] = embed(engine, prompt)
    with embedding(tiny_llama, owner, pooling="last", n_batch=128, n_ubatch=128) as engine:
        [whole] = embed(engine, prompt)
    np.testing.assert_allclose(parts, whole, atol=2e-3)


def test_any_number_of_slots_shares_a_computation(bert: Path, owner: int) -> None:
    """B.5: a batch that three slots do not divide is made a little smaller."""
    with embedding(bert, owner, n_parallel=3, n_ubatch=32) as engine:
        assert len(embed(engine, [5] * 30)) == 1


def test_positions_end_where_the_training_did(bert: Path, owner: int) -> None:
    """B.5: a larger context than the model has positions for would read beyond its table."""
    with embedding(bert, owner, n_ctx=2048, n_batch=2048, n_ubatch=2048) as engine:
        ask(engine, "long", [5] * (N_CTX + 1))
        assert isinstance(error(run(engine), "long"), ContextExceeded)
        assert embed(engine, [5] * N_CTX)[0].shape == (1, N_EMBD)


def test_a_reranker_gives_scores(reranker: Path, owner: int) -> None:
    """B.5: one number for an input, whatever normalization is asked for."""
    with loaded(reranker, owner, computing=Computing(rerank=True)) as engine:
        scores = embed(engine, *INPUTS, norm=2)
        assert [score.shape for score in scores] == [(1, 1)] * 3
        assert len({float(score[0, 0]) for score in scores}) == 3 and max(abs(float(score[0, 0])) for score in scores) > 1


def test_an_encoder_writes_nothing(bert: Path, owner: int) -> None:
    """B.5: a request for text is refused, with or without --embeddings."""
    for computing in (Computing(embeddings=True), Computing()):
        with loaded(bert, owner, computing=computing) as engine:
            submit(engine, "a", [5, 6])
            assert isinstance(error(run(engine), "a"), NotSupported)


def test_answers_beside_embeddings_are_the_same(tiny_llama: Path, owner: int) -> None:
    """D.2: a server with --embeddings still writes, and neither disturbs the other."""
    prompt = [1, 40, 50, 60]
    with loaded(tiny_llama, owner, **SAME_IN_ANY_BATCH) as engine:
        wanted = generate(engine, np.array(prompt), max_tokens=12)
    with embedding(tiny_llama, owner, pooling="mean") as engine:
        alone = embed(engine, INPUTS[0])[0]
        submit(engine, "text", np.array(prompt), GREEDY, max_tokens=12)
        for i in range(6):
            ask(engine, f"e{i}", INPUTS[0])
        outputs = run(engine)
        assert tokens(outputs, "text") == wanted
        for i in range(6):
            ended = end(outputs, f"e{i}")
            assert isinstance(ended, Ended) and isinstance(ended.finish, Embedding)
            np.testing.assert_allclose(ended.finish.vectors, alone, atol=2e-3)


@pytest.mark.parametrize("kind", ["bert", "tiny_llama", "tiny_mamba"])
def test_memory_goes_and_comes_back_between_inputs(kind: str, owner: int, request: pytest.FixtureRequest) -> None:
    """S10: the same vectors, bit by bit."""
    with embedding(request.getfixturevalue(kind), owner, pooling="mean") as engine:
        before = embed(engine, INPUTS[0])[0]
        engine.memory.release(*CLASSES)
        engine.memory.restore(*CLASSES)
        assert embed(engine, INPUTS[0])[0].tobytes() == before.tobytes()
