"""Embeddings, ranking and infill beside llama-server of the same source, on the same file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.differential.peers import PEER, both
from tests.tiny_modes import FIM, write_bert

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PEER not in os.environ, reason=f"{PEER} names no llama-server to compare with")]

TEXTS = ["hello world", "the world is at you", "a", "it is in the ering on of to and you " * 4]
TOLERANCE = 1e-3  # the sums of a batch depend on its shape
FIM_FLAGS = ("--override-kv", ",".join(f"tokenizer.ggml.fim_{name}_token_id=int:{token}" for name, token in FIM.items()))


def answers(model: Path, arena: Path, flags: tuple[str, ...], path: str, *bodies: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(ours, theirs) for each body."""
    with both(model, arena, *flags) as (ours, theirs):
        for body in bodies:
            yield ours.post(path, body).json(), theirs.post(path, body).json()


def assert_close(ours: Any, theirs: Any) -> None:
    """The same shape, and numbers that differ by rounding only, relative to the largest."""
    one, other = np.array(ours, np.float64), np.array(theirs, np.float64)
    assert one.shape == other.shape
    np.testing.assert_allclose(one, other, atol=TOLERANCE * np.abs(other).max())


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_the_same_vectors_of_an_encoder(tmp_path: Path, pooling: str) -> None:
    """B.5, C.2: each pooling, in OpenAI's form; usage too."""
    flags = ("--embeddings", "--pooling", pooling)
    for ours, theirs in answers(write_bert(tmp_path / "bert.gguf"), tmp_path / "arena", flags, "/v1/embeddings", {"input": TEXTS}):
        assert_close([one["embedding"] for one in ours["data"]], [one["embedding"] for one in theirs["data"]])
        assert ours["usage"] == theirs["usage"]


def test_the_same_vector_for_each_token(tmp_path: Path) -> None:
    """B.5: pooling none, in llama-server's own form."""
    flags = ("--embeddings", "--pooling", "none")
    for ours, theirs in answers(write_bert(tmp_path / "bert.gguf"), tmp_path / "arena", flags, "/embeddings", {"content": TEXTS[0]}):
        assert_close(ours[0]["embedding"], theirs[0]["embedding"])


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_the_same_vectors_of_a_model_that_writes(tmp_path: Path, real_model: Any, pooling: str) -> None:
    """B.5: SmolLM2."""
    flags = ("--embeddings", "--pooling", pooling)
    for ours, theirs in answers(real_model("smollm2"), tmp_path / "arena", flags, "/v1/embeddings", {"input": TEXTS}):
        assert_close([one["embedding"] for one in ours["data"]], [one["embedding"] for one in theirs["data"]])


@pytest.mark.parametrize("norm", [-1, 0, 1, 2, 3])
def test_the_same_norms(tmp_path: Path, norm: int) -> None:
    """C.2 --embd-normalize, of a request."""
    body = {"content": TEXTS[0], "embd_normalize": norm}
    for ours, theirs in answers(write_bert(tmp_path / "bert.gguf"), tmp_path / "arena", ("--embeddings",), "/embedding", body):
        assert_close(ours[0]["embedding"], theirs[0]["embedding"])


def test_the_same_ranking(tmp_path: Path) -> None:
    """B.5: scores, order and usage, in both forms."""
    model = write_bert(tmp_path / "rank.gguf", pooling=gguf.PoolingType.RANK)
    jina = {"query": "hello", "documents": TEXTS}
    tei = {"query": "hello", "texts": TEXTS, "top_n": 2, "return_text": True}
    (ours, theirs), (our_list, their_list) = answers(model, tmp_path / "arena", ("--rerank",), "/rerank", jina, tei)
    assert [one["index"] for one in ours["results"]] == [one["index"] for one in theirs["results"]]
    assert_close([one["relevance_score"] for one in ours["results"]], [one["relevance_score"] for one in theirs["results"]])
    assert ours["usage"] == theirs["usage"]
    assert [(one["index"], one["text"]) for one in our_list] == [(one["index"], one["text"]) for one in their_list]


@pytest.mark.parametrize("flags", [(), ("--spm-infill",)], ids=["prefix first", "suffix first"])
def test_the_same_text_in_the_gap(tmp_path: Path, tiny_llama: Path, flags: tuple[str, ...]) -> None:
    """B.3: greedy, with other files; how many tokens the prompt has tells how it was made."""
    body = {"input_prefix": "hello ", "input_suffix": " world", "prompt": "the", "n_predict": 16, "temperature": 0, "ignore_eos": True}
    extra = {**body, "input_extra": [{"text": "one", "filename": "a.py"}, {"text": "two"}]}
    for ours, theirs in answers(tiny_llama, tmp_path / "arena", (*FIM_FLAGS, *flags), "/infill", body, extra):
        assert ours["tokens_evaluated"] == theirs["tokens_evaluated"]
        assert ours["content"].rstrip("\ufffd") == theirs["content"].rstrip("\ufffd")  # half a character where the limit cuts
