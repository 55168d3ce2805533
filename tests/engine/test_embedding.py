"""Batches that give embeddings: one test for each sentence."""

from __future__ import annotations

import numpy as np
import pytest

from lsm.engine.limits import EmbeddingLimits
from lsm.engine.outputs import Cancelled, Ended, Output
from lsm.errors import ContextExceeded, DecodeFailed, InvalidRequest, NotSupported, ServerError
from lsm.values import Embedding
from tests.engine.scripted import Bench, ScriptedDecoder, continuation, end, error, texts, tokens


def limits(**changes: bool | int) -> EmbeddingLimits:
    return EmbeddingLimits(**({"n_ubatch": 8, "is_pooled": True, "is_normalized": True, "whole": True, "alone": False} | changes))  # type: ignore[arg-type]


def embedding(outputs: list[Output], id: str) -> Embedding:
    ended = end(outputs, id)
    assert isinstance(ended, Ended) and isinstance(ended.finish, Embedding)
    return ended.finish


def vector(outputs: list[Output], id: str) -> list[float]:
    [row] = embedding(outputs, id).vectors.tolist()
    return list(row)


def test_inputs_share_a_batch() -> None:
    """B.5: several inputs are computed at once; each gets its own vector, and its tokens are counted."""
    bench = Bench(n_slots=3, embedding=limits())
    for id, prompt in (("a", [5, 6]), ("b", [7, 8, 9]), ("c", [10])):
        bench.embed(id, prompt)
    outputs = bench.run()
    assert bench.embedder.batches == [[(0, 2), (1, 3), (2, 1)]]
    assert [vector(outputs, id) for id in "abc"] == [[6, 2], [9, 3], [10, 1]]
    assert [embedding(outputs, id).n_tokens for id in "abc"] == [2, 3, 1]


def test_an_input_that_finds_no_room_waits_as_a_whole() -> None:
    """B.5: what cannot be split is not; a smaller one may take the room."""
    bench = Bench(n_slots=3, embedding=limits())
    for id, n in (("a", 6), ("b", 5), ("c", 2)):
        bench.embed(id, [5] * n)
    bench.run()
    assert bench.embedder.batches == [[(0, 6), (2, 2)], [(1, 5)]]


def test_what_can_be_split_is() -> None:
    """B.5: with the pooling of the last token a cache makes one computation of several."""
    bench = Bench(embedding=limits(whole=False))
    bench.embed("a", list(range(3, 23)))
    outputs = bench.run()
    assert bench.embedder.batches == [[(0, 8)], [(0, 8)], [(0, 4)]]
    assert vector(outputs, "a") == [22, 20]


def test_each_input_alone_where_the_cache_has_parts() -> None:
    """B.5: a cache with a part for each sequence would compute an input in several goes."""
    bench = Bench(embedding=limits(alone=True))
    bench.embed("a", [5, 6])
    bench.embed("b", [7])
    bench.run()
    assert bench.embedder.batches == [[(0, 2)], [(1, 1)]]


def test_without_pooling_each_token_has_its_vector() -> None:
    """B.5: a list of vectors per token, also when it took several batches."""
    bench = Bench(embedding=limits(is_pooled=False, is_normalized=False, whole=False))
    bench.embed("a", list(range(3, 15)), norm=2)
    vectors = embedding(bench.run(), "a").vectors
    assert vectors.shape == (12, 2) and vectors.dtype == np.float32
    assert vectors.tolist() == [[token, at] for at, token in enumerate(range(3, 15))]


@pytest.mark.parametrize(("norm", "length"), [(-1, 10.0), (2, 1.0)])
def test_the_request_says_how_long_a_vector_is(norm: int, length: float) -> None:
    """B.5 embd_normalize."""
    bench = Bench(embedding=limits())
    bench.embed("a", [5, 5, 5, 5, 5, 8], norm)
    assert np.linalg.norm(embedding(bench.run(), "a").vectors) == pytest.approx(length)


def test_scores_are_not_normalized() -> None:
    """B.5: what a reranker says is not a direction."""
    bench = Bench(embedding=limits(is_normalized=False))
    bench.embed("a", [5, 6], norm=2)
    assert vector(bench.run(), "a") == [6, 2]


def test_answers_and_embeddings_take_turns() -> None:
    """D.2: neither waits for the other to be done."""
    bench = Bench(n_slots=3, embedding=limits(n_ubatch=2, whole=False))
    bench.submit("text", [5, 6], max_tokens=4)
    bench.embed("a", [7] * 6)
    order = []
    while bench.scheduler.has_work:
        before = len(bench.embedder.batches)
        bench.scheduler.step()
        order.append("embedding" if len(bench.embedder.batches) > before else "text")
    assert order == ["embedding", "text", "embedding", "text", "embedding", "text", "text"]
    outputs = bench.scheduler.outputs()
    assert tokens(outputs, "text") == continuation([5, 6], 4) and texts(outputs, "a") == ""


def test_what_an_embedding_left_is_a_prefix_for_an_answer() -> None:
    """B.5: the cache of a causal model is the same whatever was asked of it."""
    bench = Bench(n_slots=1, embedding=limits())
    bench.embed("a", [5, 6, 7])
    bench.run()
    _, finish = bench.answer("b", [5, 6, 7, 8], max_tokens=1)
    assert finish.timings.cache_n == 3


def test_an_embedding_takes_nothing_from_the_cache() -> None:
    """B.5: all tokens of an input count for a pooling."""
    bench = Bench(n_slots=1, embedding=limits())
    for id in "ab":
        bench.embed(id, [5, 6, 7])
        assert vector(bench.run(), id) == [7, 3]
    assert bench.embedder.batches == [[(0, 3)], [(0, 3)]]


def test_a_cancelled_input_is_out_of_the_next_batch() -> None:
    """D.2: and its slot is free."""
    bench = Bench(n_slots=1, embedding=limits(whole=False))
    bench.embed("a", [5] * 20)
    bench.embed("b", [6])
    bench.scheduler.step()
    bench.scheduler.cancel("a")
    outputs = bench.run()
    assert isinstance(end(outputs, "a"), Cancelled) and vector(outputs, "b") == [6, 1]


def test_without_room_in_the_cache_fewer_inputs_go_at_a_time() -> None:
    """D.2: halve and retry; what an idle slot keeps goes first."""
    bench = Bench(ScriptedDecoder(n_cells=6), n_slots=3, embedding=limits())
    bench.answer("old", [4, 4], max_tokens=1, id_slot=2)
    bench.embed("a", [5] * 4)
    bench.embed("b", [6] * 4)
    outputs = bench.run()
    assert vector(outputs, "a") == [5, 4] and vector(outputs, "b") == [6, 4]


def test_an_input_that_never_finds_room_fails() -> None:
    """D.2: by the words of llama-server; the next one is served."""
    bench = Bench(ScriptedDecoder(n_cells=4), embedding=limits())
    bench.embed("a", [5] * 6)
    failed = error(bench.run(), "a")
    assert isinstance(failed, DecodeFailed) and failed.message == "Context size has been exceeded."
    bench.embed("b", [5])
    assert vector(bench.run(), "b") == [5, 1]


@pytest.mark.parametrize(("code", "message"), [(-1, "Invalid input batch."), (-3, "Compute error (llama_decode: -3).")])
def test_a_failed_computation_fails_its_inputs(code: int, message: str) -> None:
    """D.2: those in the batch, and no other."""
    bench = Bench(n_slots=1, embedding=limits())
    bench.embed("a", [5])
    bench.embed("b", [6])
    bench.decoder.codes = [code]
    outputs = bench.run()
    assert error(outputs, "a").message == message and vector(outputs, "b") == [6, 1]


def test_an_error_of_the_device_fails_its_inputs() -> None:
    """D.2: an exception is no different."""
    bench = Bench(embedding=limits())
    bench.decoder.error = ServerError("it is away")
    bench.embed("a", [5])
    assert error(bench.run(), "a").message == "it is away"


def test_inputs_that_are_refused() -> None:
    """B.5: empty; of a token that there is not; longer than the slot; longer than one computation, with both numbers."""
    bench = Bench(n_ctx_slot=12, embedding=limits())
    for id, prompt in (("empty", []), ("alien", [99]), ("long", [5] * 13), ("large", [5] * 9)):
        bench.embed(id, prompt)
    outputs = bench.run()
    assert isinstance(error(outputs, "empty"), InvalidRequest) and "'input'" in error(outputs, "empty").message
    assert "vocabulary of 28 tokens" in error(outputs, "alien").message
    assert isinstance(error(outputs, "long"), ContextExceeded)
    assert error(outputs, "large").message == (
        "input (9 tokens) is too large to process. increase the physical batch size (current batch size: 8)"
    )


def test_a_server_without_embeddings_says_how_to_get_them() -> None:
    """B.5: needs --embeddings, else 501."""
    bench = Bench()
    bench.embed("a", [5])
    failed = error(bench.run(), "a")
    assert isinstance(failed, NotSupported) and "--embeddings" in failed.message


def test_a_model_that_only_embeds_writes_nothing() -> None:
    """B.5: and says what it can do."""
    bench = Bench(embedding=limits(), generates=False)
    bench.submit("a", [5])
    failed = error(bench.run(), "a")
    assert isinstance(failed, NotSupported) and "makes embeddings" in failed.message
