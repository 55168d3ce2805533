"""B.3 at the HTTP door: completion and infill in llama-server's own form."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.transports.http.served import Served

GAP = {"input_prefix": "def f():", "input_suffix": "return x"}


async def frames(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post(path, json={**body, "stream": True})
    assert response.text.endswith("\n\n") and "[DONE]" not in response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line.startswith("data: ")]


@pytest.mark.parametrize("path", ["/completion", "/completions"])
async def test_a_completion_in_the_native_form(client: httpx.AsyncClient, path: str) -> None:
    """B.3: all members that clients of llama-server read."""
    answer = (await client.post(path, json={"prompt": "a\nc", "n_predict": 8, "temperature": 0.5})).json()
    assert (answer["content"], answer["stop"], answer["stop_type"], answer["stopping_word"]) == ("a\nc", True, "eos", "")
    assert (answer["tokens_predicted"], answer["tokens_evaluated"], answer["tokens_cached"]) == (3, 3, 5)
    assert (answer["model"], answer["prompt"], answer["has_new_line"], answer["truncated"]) == ("one", "a\nc", True, False)
    assert (answer["generation_settings"]["n_predict"], answer["generation_settings"]["temperature"]) == (8, 0.5)
    assert answer["timings"]["predicted_n"] == 3 and answer["id_slot"] == 0


@pytest.mark.parametrize(("asked", "tokens"), [(True, [97, 98]), (False, []), (None, [])])
async def test_tokens_of_a_whole_answer_are_told_on_request(client: httpx.AsyncClient, asked: bool | None, tokens: list[int]) -> None:
    """B.2 return_tokens: they are as many numbers as the answer is long."""
    answer = await client.post("/completion", json={"prompt": "ab", "return_tokens": asked})
    assert answer.json()["tokens"] == tokens


@pytest.mark.parametrize(("path", "body"), [("/completion", {"prompt": "ab"}), ("/infill", GAP)])
async def test_only_the_fields_that_are_asked_for(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """B.2 response_fields: by their paths, in each of several answers; an empty list is everything."""
    wanted = {**body, "response_fields": ["stop", "timings/predicted_n"]}
    assert list((await client.post(path, json=wanted)).json()) == ["stop", "timings/predicted_n"]
    assert list((await frames(client, path, wanted))[-1]) == ["stop", "timings/predicted_n"]
    assert "content" in (await client.post(path, json={**body, "response_fields": []})).json()


async def test_a_native_stream_ends_without_a_mark(client: httpx.AsyncClient) -> None:
    """B.0: [DONE] is for OpenAI's routes; the last event says `stop`."""
    *chunks, last = await frames(client, "/completion", {"prompt": "abc"})
    assert "".join(chunk["content"] for chunk in chunks) == "abc"
    assert [token for chunk in chunks for token in chunk["tokens"]] == [97, 98, 99]
    assert not any(chunk["stop"] for chunk in chunks) and chunks[-1]["tokens_predicted"] == 3
    assert (last["stop"], last["content"], last["tokens_predicted"]) == (True, "", 3)


async def test_token_ids_are_shown_as_the_text_they_are(client: httpx.AsyncClient) -> None:
    """B.3: `prompt` of the answer is a text."""
    assert (await client.post("/completion", json={"prompt": [97, 98]})).json()["prompt"] == "ab"


async def test_a_gap_is_filled(client: httpx.AsyncClient) -> None:
    """B.3: prefix, suffix, how the middle begins, and other files; a file without a name is called tmp."""
    body = {**GAP, "prompt": "x =", "input_extra": [{"text": "one", "filename": "a.py"}, {"text": "two"}]}
    answer = (await client.post("/infill", json=body)).json()
    assert answer["content"] == "a.py=one;tmp=two;def f():|x =|return x"
    assert "".join(chunk["content"] for chunk in await frames(client, "/infill", body)) == answer["content"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input_suffix": "b"}, '"input_prefix" is required'),
        ({"input_prefix": "a"}, '"input_suffix" is required'),
        ({**GAP, "input_prefix": 7}, "input_prefix"),
        ({**GAP, "prompt": [1]}, "prompt"),
        ({**GAP, "input_extra": {}}, "input_extra"),
        ({**GAP, "input_extra": [{"filename": "a"}]}, "input_extra"),
        ({**GAP, "input_extra": [{"text": "a", "filename": 7}]}, "filename"),
    ],
)
async def test_a_wrong_infill_is_refused_at_once(server: Served, client: httpx.AsyncClient, body: dict[str, Any], message: str) -> None:
    """B.3, D.3 (4): 400, and nothing is generated behind the error."""
    response = await client.post("/infill", json=body)
    assert response.status_code == 400 and message in response.json()["error"]["message"]
    assert server.host.counters("").requests_processing == 0 and server.host.scripted("").request_id == ""
