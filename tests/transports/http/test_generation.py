from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import trio
from lsm_http.answer import AnswerStream
from lsm_http.openai_format import CompletionFormat, Heading
from starlette.types import Message

from lsm.api import Options
from tests.transports.http.served import Served, served
from tests.transports.scripted_host import ScriptedHost, ScriptedModel

USER = [{"role": "user", "content": "hello"}]


async def test_the_openai_client_chats(server: Served) -> None:
    """B.4: whole answer, read by OpenAI's own client."""
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model="one", messages=USER)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.completion_tokens == 5
    assert answer.model_extra is not None and answer.model_extra["timings"]["predicted_n"] == 5


def test_the_openai_client_streams_a_chat(server_in_thread: str) -> None:
    """B.4: streamed, with usage on the last chunk; read by the blocking client."""
    with openai.OpenAI(base_url=f"{server_in_thread}/v1", api_key="none", max_retries=0) as client:
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(model="one", messages=USER, **options))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hello"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == chunks[-1].usage.prompt_tokens + 5


def test_the_openai_client_completes_text(server_in_thread: str) -> None:
    """B.3: whole and streamed."""
    with openai.OpenAI(base_url=f"{server_in_thread}/v1", api_key="none", max_retries=0) as client:
        answer = client.completions.create(model="one", prompt="abc", max_tokens=2)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ab", "length")
        chunks = list(client.completions.create(model="one", prompt="abc", stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == "abc"


def test_the_openai_client_raises_its_own_errors(server_in_thread: str) -> None:
    """B.0: statuses and types are what OpenAI's client expects."""
    with openai.OpenAI(base_url=f"{server_in_thread}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="one"):
            client.completions.create(model="three", prompt="abc")
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
            client.completions.create(model="one", prompt="x" * 600)
        with pytest.raises(openai.APIError, match="in the middle"):
            list(client.completions.create(model="one", prompt="x[break]", stream=True))


@pytest.fixture
def server_in_thread() -> Iterator[str]:
    """A server with a trio of its own, for clients that block."""
    urls: queue.Queue[str] = queue.Queue()
    token: list[Any] = []

    async def run() -> None:
        async with served() as server:
            token.extend((trio.lowlevel.current_trio_token(), server.scope))
            urls.put(server.url)
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    yield urls.get(timeout=10)
    trio.from_thread.run_sync(token[1].cancel, trio_token=token[0])
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("abc", "abc"),
        ([97, 98], "ab"),
        (["ab", 99], "abc"),
        ([97, "bc"], "abc"),
        (["abc"], "abc"),
        ([[97, 98]], "ab"),
        ({"prompt_string": "abc"}, "abc"),
    ],
)
async def test_prompts_in_all_their_forms(client: httpx.AsyncClient, prompt: object, text: str) -> None:
    """B.2: text, ids, both mixed, a list of one, an object."""
    response = await client.post("/v1/completions", json={"prompt": prompt})
    assert response.json()["choices"][0]["text"].removeprefix("<bos>") == text


async def test_several_prompts_are_refused(client: httpx.AsyncClient) -> None:
    """D.5 (7): refused by name, never half done."""
    for prompt in (["a", "b"], [[1], [2]]):
        response = await client.post("/v1/completions", json={"prompt": prompt})
        assert response.status_code == 501 and "'prompt'" in response.json()["error"]["message"]


async def test_the_cached_part_of_a_prompt_is_reported(client: httpx.AsyncClient) -> None:
    """B.2: timings.cache_n, and cached_tokens in usage."""
    await client.post("/v1/completions", json={"prompt": "abc"})
    body = (await client.post("/v1/completions", json={"prompt": "abcd"})).json()
    assert (body["timings"]["cache_n"], body["timings"]["prompt_n"]) == (3, 1)
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "status", "kind"),
    [
        ("x[refuse]", 500, "server_error"),
        ("x[no room]", 503, "unavailable_error"),
        ("x" * 600, 400, "exceed_context_size_error"),
    ],
)
async def test_errors_before_the_first_byte_are_statuses(
    client: httpx.AsyncClient, prompt: str, status: int, kind: str, stream: bool
) -> None:
    """B.0: also for a stream; and the next request is served."""
    response = await client.post("/v1/completions", json={"prompt": prompt, "stream": stream})
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert (await client.post("/v1/completions", json={"prompt": "next"})).status_code == 200


async def test_errors_after_the_first_byte_are_frames(client: httpx.AsyncClient) -> None:
    """B.0: `data: {"error": ...}`, then the end, without [DONE]."""
    response = await client.post("/v1/completions", json={"prompt": "x[break]", "stream": True})
    frames = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert response.status_code == 200
    assert json.loads(frames[0])["choices"][0]["text"] == "x"
    assert json.loads(frames[-1])["error"] == {
        "code": 500, "message": "the batch was refused in the middle, as scripted", "type": "server_error",
    }  # fmt: skip


async def test_a_stream_ends_with_done(client: httpx.AsyncClient) -> None:
    """B.0: the end mark of OpenAI's streams."""
    response = await client.post("/v1/completions", json={"prompt": "ab", "stream": True})
    assert response.text.endswith("\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "'messages' is required"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "Field 'messages': Expected `array"),
        ({"messages": USER, "continue_final_message": True}, "continue_final_message"),
        ({"messages": USER, "continue_final_message": True, "add_generation_prompt": True}, "Cannot set both"),
    ],
)
async def test_bad_conversations(client: httpx.AsyncClient, body: object, message: str) -> None:
    """B.4: 400 with a clear message."""
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400 and message in response.json()["error"]["message"]


async def test_a_mistake_of_ours_is_a_500_and_not_the_end() -> None:
    """B.0: anything else -> 500 server_error; the inside is in the log, not in the answer."""

    class Mistaken(ScriptedHost):
        def counters(self, model: str) -> Any:
            raise ZeroDivisionError("secret")

    async with served("--metrics", host_class=Mistaken) as server, server.client() as client:
        response = await client.get("/metrics")
        assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
        assert "secret" not in response.text
        assert (await client.get("/health")).status_code == 200


async def test_a_silent_stream_is_kept_open_by_pings(autojump_clock: trio.testing.MockClock) -> None:
    """B.0: a comment every so many seconds, of virtual time here."""
    host = ScriptedHost([ScriptedModel("one")])
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    stream = AnswerStream(host.generate("one", "x[stall]", Options()), CompletionFormat(Heading("one", 0, "")), 1, False, 30.0)
    with trio.move_on_after(100):
        await stream({"type": "http"}, _never, send)
    assert sent[2:5] == [b":\n\n"] * 3


async def test_ready_text_goes_out_in_one_piece() -> None:
    """Design 8: all text that is ready for a stream is one body event."""
    host = ScriptedHost([ScriptedModel("one")])
    gate = trio.Event()
    sent: list[bytes] = []

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        await gate.wait()  # the socket takes nothing until the generation is over

    stream = AnswerStream(host.generate("one", "abcdefgh", Options()), CompletionFormat(Heading("one", 0, "")), 1, False, 30.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, {"type": "http"}, _never, send)
        await trio.testing.wait_all_tasks_blocked()
        assert not host.scripted("one").slot.locked()  # a slot is never held across a send
        gate.set()
    frames = [piece.count(b"data: ") for piece in sent if piece]
    assert sum(frames) == 10 and len(frames) == 2  # what was ready when the sending began, and the rest


async def _never() -> Message:
    await trio.sleep_forever()
    raise AssertionError
