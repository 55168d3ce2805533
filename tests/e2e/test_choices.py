"""Several answers, progress and shifts through a real server process, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .servers import Server

pytestmark = pytest.mark.slow

PROMPT = list(range(10, 40))
SEEDED = {"prompt": PROMPT, "max_tokens": 6, "temperature": 1.5, "seed": 42, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[Server]:
    flags = ("--context-shift", "-np", "3", "--kv-unified-per-slot", "64", "--cache-reuse", "4", "-b", "16", "-ub", "16")
    with Server(tmp_path_factory.mktemp("arena"), tiny_llama, "tiny", *flags) as server:
        yield server


def events(server: Server, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = server.post(path, {**body, "stream": True})
    assert response.status_code == 200, response.text
    frames = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def test_choices_are_the_answers_to_the_seeds_that_follow(server: Server) -> None:
    """B.2 n, B.3: choices[index], each with its own seed; one prompt and three answers in usage."""
    body = server.post("/v1/completions", {**SEEDED, "n": 3}).json()
    alone = [server.post("/v1/completions", {**SEEDED, "seed": 42 + i}).json()["choices"][0]["text"] for i in range(3)]
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == list(enumerate(alone))
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (30, 18)


def test_streamed_choices_say_the_same(server: Server) -> None:
    """B.2 n: each chunk names its choice; each ends once."""
    whole = server.post("/v1/completions", {**SEEDED, "n": 2}).json()["choices"]
    chunks = [choice for event in events(server, "/v1/completions", {**SEEDED, "n": 2}) for choice in event["choices"]]
    for index in (0, 1):
        own = [choice for choice in chunks if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == whole[index]["text"]
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["length"]


def test_native_answers_come_as_a_list(server: Server) -> None:
    """B.3 /completion: one object for each."""
    answers = server.post("/completion", {**SEEDED, "n_cmpl": 2}).json()
    assert [answer["index"] for answer in answers] == [0, 1]
    assert [answer["generation_settings"]["seed"] for answer in answers] == [42, 43]


@pytest.mark.parametrize("body", [{"n": 0}, {"n": 4}, {"n_discard": -1}, {"n_keep": -2}])
def test_numbers_out_of_range_are_refused(server: Server, body: dict[str, int]) -> None:
    """B.2: hard limits, with the name of the field."""
    response = server.post("/v1/completions", {**SEEDED, **body})
    assert response.status_code == 400
    assert f"'{next(iter(body))}'" in response.json()["error"]["message"]


def test_progress_comes_before_the_text(server: Server) -> None:
    """B.2 return_progress, timings_per_token: prompt_progress in chunks of their own, timings with each text."""
    body = {**SEEDED, "cache_prompt": False, "return_progress": True, "timings_per_token": True}
    chunks = events(server, "/v1/completions", body)
    progress = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    assert progress[-1]["total"] == progress[-1]["processed"] == 30
    texts = [chunk for chunk in chunks if "prompt_progress" not in chunk]
    assert all("timings" in chunk for chunk in texts)
    assert chunks[: len(progress)] == [chunk for chunk in chunks if "prompt_progress" in chunk]


def test_an_answer_longer_than_the_slot_goes_on(server: Server) -> None:
    """D.2 context shift, S18: a slot of 64 tokens gives 200."""
    answer = server.post("/completion", {"prompt": PROMPT, "n_predict": 200, "temperature": 0, "ignore_eos": True, "n_keep": 4}).json()
    assert (answer["tokens_predicted"], answer["truncated"], answer["stop_type"]) == (200, True, "limit")


def test_a_prompt_that_is_too_long_for_the_slot(server: Server) -> None:
    """S18: 400 exceed_context_size_error with n_prompt_tokens and n_ctx; /props and /slots tell the limit."""
    response = server.post("/v1/completions", {"prompt": [10] * 80})
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["n_prompt_tokens"], error["n_ctx"]) == (400, "exceed_context_size_error", 80, 64)
    assert server.get("/props").json()["default_generation_settings"]["n_ctx"] == 64
    assert [slot["n_ctx"] for slot in server.get("/slots").json()] == [64, 64, 64]
