"""How likely tokens were, as clients of OpenAI and of llama-server read it.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsm.api import TokenProb, TokenProbs

LOWEST = -3.4028234663852886e38  # JSON has no infinity: llama-server writes the lowest float


def entries(probs: Sequence[TokenProbs]) -> list[dict[str, Any]]:
    """llama-server's: `completion_probabilities`, and the `content` of OpenAI's `logprobs`."""
    return [
        {**_entry(of.chosen, of.is_log), ("top_logprobs" if of.is_log else "top_probs"): [_entry(other, of.is_log) for other in of.top]}
        for of in probs
    ]


def chat_logprobs(probs: Sequence[TokenProbs]) -> dict[str, Any] | None:
    """The member `logprobs` of a choice of a chat."""
    return {"content": entries(probs)} if probs else None


def completion_logprobs(probs: Sequence[TokenProbs], offset: int) -> dict[str, Any] | None:
    """The member `logprobs` of a choice of a completion: OpenAI's four lists, and llama-server's `content`.

    `offset`: characters of the answer before the first of these tokens.
    """
    if not probs:
        return None
    texts = [text_of(of.chosen.piece) for of in probs]
    return {
        "content": entries(probs),
        "tokens": texts,
        "token_logprobs": [_finite(of.chosen.value) for of in probs],
        "top_logprobs": [{text_of(other.piece): _finite(other.value) for other in of.top} for of in probs],
        "text_offset": [offset + sum(map(len, texts[:index])) for index in range(len(texts))],
    }


def text_of(piece: bytes) -> str:
    """The characters that are whole, up to the first that is not."""
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        return piece[: error.start].decode()


def _entry(of: TokenProb, is_log: bool) -> dict[str, Any]:
    return {"id": of.token, "token": text_of(of.piece), "bytes": list(of.piece), ("logprob" if is_log else "prob"): _finite(of.value)}


def _finite(value: float) -> float:
    return max(value, LOWEST)
