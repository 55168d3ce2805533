"""Every door on a real model: the same answer, token for token, before and after it has slept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm import api
from lsm.config import Settings
from lsm.models import models_directory
from tests.transports.doors import OPENERS, Door, Refused, Reply, open_blocking
from tests.transports.limits import within_limit

MODEL = models_directory(os.environ) / "smollm2-135m-instruct-q4_1.gguf"
QUESTION = "What is a lock?"
GREEDY = {"temperature": 0, "max_tokens": 12}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not MODEL.exists(), reason="`lsm pull smollm2` fetches the model")]


def settings_in(arena: Path) -> Settings:
    return Settings(model_paths=(MODEL,), aliases=("smollm2",), arena=arena, n_ctx=1024, n_parallel=1, port=0)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Reply:
    """The answer of an undisturbed model."""
    with open_blocking(settings_in(tmp_path_factory.mktemp("arena")), api.open_host, "lsm_mcp") as door:
        return within_limit(lambda: door.chat("smollm2", QUESTION, **GREEDY))


@pytest.fixture(scope="module", params=OPENERS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with OPENERS[request.param](settings_in(tmp_path_factory.mktemp("arena")), api.open_host, "lsm_mcp") as door:
        within_limit(lambda: door.wake("smollm2"))
        yield door


def device_bytes(door: Door) -> int:
    weights: dict[str, int] = door.state()["models"][0]["bytes"]["weights"]
    return weights["device"]


def test_the_answer_is_that_of_an_undisturbed_model(door: Door, expected: Reply) -> None:
    """Part 1 of first light: token for token, at temperature 0."""
    reply = within_limit(lambda: door.chat("smollm2", QUESTION, **GREEDY))
    assert (reply.text, reply.finish, reply.prompt_tokens) == (expected.text, "length", expected.prompt_tokens)
    assert reply.completion_tokens == GREEDY["max_tokens"]


def test_sleep_frees_the_device_and_a_request_takes_up_where_it_was(door: Door, expected: Reply) -> None:
    """Parts 2 and 3 of first light: the weights leave, the cache stays, and the answer does not change."""
    within_limit(lambda: door.chat("smollm2", QUESTION, **GREEDY))
    before = device_bytes(door)
    within_limit(lambda: door.sleep("smollm2"))
    assert device_bytes(door) < before / 10
    reply = within_limit(lambda: door.chat("smollm2", QUESTION, **GREEDY))
    assert reply.text == expected.text
    assert reply.cached_tokens == reply.prompt_tokens - 1
    assert device_bytes(door) == before


def test_leaving_cancels(door: Door) -> None:
    """S4: the only slot serves the next request at once, though the answer would have taken many seconds."""
    within_limit(lambda: door.abandon("smollm2", "Once upon a time", lambda: None))
    assert within_limit(lambda: door.complete("smollm2", "Hello", max_tokens=1)).completion_tokens == 1


def test_a_prompt_that_does_not_fit_is_refused(door: Door) -> None:
    """B.2: exceed_context_size_error, and the next request is served."""
    with pytest.raises(Refused, match="exceeds the available context size") as refused:
        within_limit(lambda: door.complete("smollm2", "word " * 2000))
    assert refused.value.type == "exceed_context_size_error"
    assert within_limit(lambda: door.complete("smollm2", "Hello", max_tokens=1)).completion_tokens == 1
