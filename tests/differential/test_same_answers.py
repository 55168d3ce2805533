"""The same requests to both servers give the same answers, where LSM_PEER_LLAMA_SERVER names a llama-server of the pinned source.

    LSM_PEER_LLAMA_SERVER=build/bin/llama-server pytest tests/differential
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.differential.cases import CASES, Case
from tests.differential.differences import DIFFERENCES
from tests.differential.peers import PEER, Peer, both
from tests.e2e.servers import Server

TOLERANCE = 1e-5  # of probabilities, and of the distances between logarithms
# Theirs adds up the whole vocabulary in single precision: all logarithms of a place are off by the same, up to this.
OFFSET_TOLERANCE = 5e-4

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("differential")]


@pytest.fixture(scope="module")
def pair(real_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Peer]]:
    if PEER not in os.environ:
        pytest.skip(f"{PEER} names no llama-server to compare with")
    with both(real_model("smollm2"), tmp_path_factory.mktemp("arena") / "arena") as pair:
        yield pair


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answers_are_the_same(case: Case, pair: tuple[Server, Peer]) -> None:
    """B.2, C.4: tokens, ends and probabilities; what differs on purpose stands in `differences`."""
    ours, theirs = (_answer(server.post(case.path, dict(case.body))) for server in pair)
    if case.compare == "validity":
        assert _has_ended(ours)
        for answer in filter(_has_ended, (ours, theirs)):
            json.loads(_text(answer))
    elif case.name in DIFFERENCES:
        assert _seen(ours) != _seen(theirs), f"the difference is gone, take it from the table: {DIFFERENCES[case.name]}"
    else:
        assert _seen(ours) == _seen(theirs)
        if case.compare == "probabilities":
            _same_probabilities(_probabilities(ours), _probabilities(theirs))


def test_every_difference_belongs_to_a_case() -> None:
    """The table of differences names nothing that is not compared."""
    assert set(DIFFERENCES) <= {case.name for case in CASES}


def _answer(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def _text(answer: dict[str, Any]) -> str:
    if "content" in answer:
        return str(answer["content"])
    choice = answer["choices"][0]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def _has_ended(answer: dict[str, Any]) -> bool:
    return bool(answer["stop_type"] == "eos" if "stop_type" in answer else answer["choices"][0]["finish_reason"] == "stop")


def _seen(answer: dict[str, Any]) -> tuple[Any, ...]:
    """What a client sees of the tokens and of how they ended."""
    if "content" in answer:
        names = ("content", "tokens_predicted", "tokens_evaluated", "stop_type", "stopping_word", "truncated")
        return tuple(answer[name] for name in names)
    return _text(answer), answer["choices"][0]["finish_reason"], answer["usage"]


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
