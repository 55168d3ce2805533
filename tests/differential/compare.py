"""What of two answers must be the same: what a client sees of the tokens, of how they ended and of what the cache gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.differential.cases import Case

TOLERANCE = 1e-5  # of probabilities, and of the distances between logarithms
# Theirs adds up the whole vocabulary in single precision: all logarithms of a place are off by the same, up to this.
OFFSET_TOLERANCE = 5e-4
NATIVE = ("index", "tokens_predicted", "tokens_evaluated", "tokens_cached", "stop_type", "stopping_word", "truncated")


def assert_same(case: Case, ours: Any, theirs: Any) -> None:
    """Both are bodies of answers to `case`."""
    if case.compare == "validity":
        assert _has_ended(ours)
        for answer in filter(_has_ended, (ours, theirs)):
            json.loads(_text(answer))
        return
    assert seen(case, ours) == seen(case, theirs)
    if case.compare == "probabilities":
        _same_probabilities(_probabilities(ours), _probabilities(theirs))


def seen(case: Case, answer: Any) -> Any:
    if case.compare == "whole":
        return answer
    if case.compare == "slot":  # the rest are times, and the name
        return {name: value for name, value in answer.items() if name.startswith("n_")}
    if isinstance(answer, list):  # of several choices
        return sorted((_seen(each) for each in answer), key=lambda each: int(each["index"]))
    return _seen(answer)


def _seen(answer: dict[str, Any]) -> dict[str, Any]:
    if "content" in answer:
        text = {"tokens": answer["tokens"]} if answer["tokens"] else {"content": answer["content"]}
        timings = {name: answer["timings"][name] for name in ("cache_n", "prompt_n", "predicted_n")}
        return {**text, **timings, **{name: answer[name] for name in NATIVE}}
    choices = sorted((choice["index"], _choice_text(choice), choice["finish_reason"]) for choice in answer["choices"])
    return {"choices": choices, "usage": answer["usage"]}


def _choice_text(choice: dict[str, Any]) -> str:
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def _text(answer: dict[str, Any]) -> str:
    return str(answer["content"]) if "content" in answer else _choice_text(answer["choices"][0])


def _has_ended(answer: dict[str, Any]) -> bool:
    return bool(answer["stop_type"] == "eos" if "stop_type" in answer else answer["choices"][0]["finish_reason"] == "stop")


def _probabilities(answer: dict[str, Any]) -> list[dict[str, Any]]:
    if "content" in answer:
        return list(answer["completion_probabilities"])
    return list(answer["choices"][0]["logprobs"]["content"])


def _same_probabilities(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert [entry.keys() for entry in ours] == [entry.keys() for entry in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        offset = other["logprob"] - mine["logprob"] if "logprob" in mine else 0.0
        assert abs(offset) < OFFSET_TOLERANCE
        pairs = [(mine, other), *zip(_top(mine), _top(other), strict=True)]
        for first, second in pairs:
            assert [first[name] for name in ("id", "token", "bytes")] == [second[name] for name in ("id", "token", "bytes")]
            assert _value(first) + offset == pytest.approx(_value(second), abs=TOLERANCE)


def _top(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return list(entry["top_logprobs"] if "top_logprobs" in entry else entry["top_probs"])


def _value(entry: dict[str, Any]) -> float:
    return float(entry["logprob"] if "logprob" in entry else entry["prob"])
