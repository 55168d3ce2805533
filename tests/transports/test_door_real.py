"""Every door on a real model: the same answer, token for token, before and after it has slept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm import api
from lsm.api import Options, Sampling
from lsm.config import Settings
from tests.transports.doors import OPENERS, Door, Refused, Reply, open_blocking
from tests.transports.limits import within_limit

FindModel = Callable[[str], Path]

QUESTION = "What is a lock?"
GREEDY = {"temperature": 0, "max_tokens": 6}

pytestmark = pytest.mark.slow


def settings_for(model: Path, arena: Path) -> Settings:
    """One slot, and answers without an end, so that a request that was not cancelled keeps the next one out for minutes."""
    endless = Options(sampling=Sampling(ignore_eos=True))
    return Settings(
        model_paths=(model,),
        aliases=("smollm2",),
        arena=arena,
        n_ctx=8192,
        n_parallel=1,
        threads=1,  # on a machine that is busy, several threads mostly wait for each other
        port=0,
        options=endless,
    )


@pytest.fixture(scope="module")
def expected(real_model: FindModel, tmp_path_factory: pytest.TempPathFactory) -> Reply:
    """The answer of an undisturbed model."""
    settings = settings_for(real_model("smollm2"), tmp_path_factory.mktemp("arena"))
    with open_blocking(settings, api.open_host, "lsm_mcp") as door:
        return within_limit(lambda: door.chat("smollm2", QUESTION, **GREEDY))


@pytest.fixture(scope="module", params=OPENERS)
def door(
    request: pytest.FixtureRequest, real_model: FindModel, tmp_path_factory: pytest.TempPathFactory, expected: Reply
) -> Iterator[Door]:
    """Opened when the undisturbed model is gone."""
    settings = settings_for(real_model("smollm2"), tmp_path_factory.mktemp("arena"))
    with OPENERS[request.param](settings, api.open_host, "lsm_mcp") as door:
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
    """S4: the only slot serves the next request at once, though the answer would have taken minutes."""
    within_limit(lambda: door.abandon("smollm2", "Once upon a time", lambda: None))
    assert within_limit(lambda: door.complete("smollm2", "Hello", max_tokens=1)).completion_tokens == 1


def test_a_prompt_that_does_not_fit_is_refused(door: Door) -> None:
    """B.2: exceed_context_size_error, and the next request is served."""
    with pytest.raises(Refused, match="exceeds the available context size") as refused:
        within_limit(lambda: door.complete("smollm2", "word " * 9000))
    assert refused.value.type == "exceed_context_size_error"
    assert within_limit(lambda: door.complete("smollm2", "Hello", max_tokens=1)).completion_tokens == 1
