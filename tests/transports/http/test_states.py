from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from lsm_http.routes.state import StateStream
from starlette.types import Message

from tests.transports.http.served import Served, read_until, request, served
from tests.transports.scripted_host import ScriptedHost, ScriptedModel

CHEAP = ("/health", "/v1/models", "/props", "/metrics", "/slots", "/lsm/state", "/")


async def test_state_is_the_hosts_document(server: Served, client: httpx.AsyncClient) -> None:
    """GET /lsm/state: one JSON document, the same for everybody."""
    assert (await client.get("/lsm/state")).json() == server.host.state()


async def test_before_a_model_is_loaded() -> None:
    """B.0: 503 "Loading model" with Retry-After where the model is needed; what shows the server answers always."""
    async with served("--metrics", models=("loading.gguf",)) as server, server.client() as client:
        for path in ("/v1/models", "/metrics", "/lsm/state", "/"):
            assert (await client.get(path)).status_code == 200
        gets = [await client.get(path) for path in ("/health", "/props", "/slots")]
        body = {"prompt": "x", "content": "x", "tokens": [1], "messages": [{"role": "user", "content": "x"}]}
        paths = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template")
        for response in [*gets, *[await client.post(path, json=body) for path in paths]]:
            assert response.status_code == 503 and response.headers["retry-after"] == "1"
            assert response.json()["error"]["message"] == "Loading model"
        assert (await client.get("/v1/models")).json()["data"][0]["status"]["value"] == "loading"


async def test_a_model_that_cannot_be_loaded_says_why() -> None:
    """B.0: 503, not "Loading model" for ever."""
    async with served(models=("broken.gguf",)) as server, server.client() as client:
        for response in (await client.get("/health"), await client.post("/v1/completions", json={"prompt": "x"})):
            assert response.status_code == 503 and "not a GGUF file" in response.json()["error"]["message"]
        assert "POST /lsm/wake" in response.json()["error"]["message"]


async def test_one_model_that_serves_is_health_enough() -> None:
    """B.1: with several models, the server is healthy when one of them can be asked."""
    async with served(models=("broken.gguf", "loading.gguf", "fine.gguf")) as server, server.client() as client:
        assert (await client.get("/health")).status_code == 200


async def test_looking_at_a_sleeping_model_does_not_wake_it(server: Served, client: httpx.AsyncClient) -> None:
    """P15: cheap routes answer and change nothing."""
    await client.post("/lsm/sleep")
    before = server.host.state()
    for path in CHEAP:
        assert (await client.get(path)).status_code == 200, path
    assert (await client.post("/tokenize", json={"content": "x"})).status_code == 200
    assert (await client.post("/apply-template", json={"messages": [{"role": "user", "content": "x"}]})).status_code == 200
    assert server.host.state() == before
    assert (await client.get("/props")).json()["is_sleeping"] is True
    assert (await client.get("/v1/models")).json()["data"][0]["status"]["value"] == "sleeping"


async def test_a_request_wakes_a_sleeping_model(server: Served, client: httpx.AsyncClient) -> None:
    """B.0: every other model endpoint wakes it and waits."""
    await client.post("/lsm/sleep")
    assert (await client.post("/v1/completions", json={"prompt": "x"})).status_code == 200
    assert server.host.state()["counters"]["wakes"] == 1


async def test_sleep_and_wake_by_name() -> None:
    """POST /lsm/sleep and /lsm/wake answer when it is done; no body means the first model."""
    async with served(models=("one.gguf", "two.gguf")) as server, server.client() as client:
        response = await client.post("/lsm/sleep", json={"model": "two"})
        assert response.json() == {"model": "two", "load_state": "ready", "sleep_state": "asleep"}
        assert [info.sleep_state for info in server.host.models()] == ["awake", "asleep"]
        assert (await client.post("/lsm/wake", json={"model": "two"})).json()["sleep_state"] == "awake"
        assert (await client.post("/lsm/sleep")).json()["model"] == "one"


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b'{"model": 1}', 400), (b'{"model": "none"}', 404)])
async def test_sleep_with_bad_input_changes_nothing(server: Served, client: httpx.AsyncClient, body: bytes, status: int) -> None:
    """Bad input: a clear refusal."""
    assert (await client.post("/lsm/sleep", content=body)).status_code == status
    assert server.host.models()[0].sleep_state == "awake"


async def test_events_show_now_and_each_change(server: Served, client: httpx.AsyncClient) -> None:
    """GET /lsm/events: the state at once, and again after each change."""
    async with await server.connect() as watcher:
        await watcher.send_all(request("GET", "/lsm/events"))
        head, _, event = (await read_until(watcher, b"}\n\n")).partition(b"\r\n\r\n")
        assert b"content-type: text/event-stream" in head and b"x-accel-buffering: no" in head
        assert _sleep_state(event) == "awake"
        await client.post("/lsm/sleep")
        assert _sleep_state(await read_until(watcher, b"}\n\n")) == "asleep"


async def test_a_watcher_that_leaves_is_forgotten() -> None:
    """Design 8 (5): its stream ends with it."""
    watchers = 0

    class Watched(ScriptedHost):
        @asynccontextmanager
        async def changes(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
            nonlocal watchers
            async with super().changes() as states:
                watchers += 1
                try:
                    yield states
                finally:
                    watchers -= 1
                    left.set()

    left = trio.Event()
    async with served(host_class=Watched) as server:
        async with await server.connect() as watcher:
            await watcher.send_all(request("GET", "/lsm/events"))
            await read_until(watcher, b"}\n\n")
            assert watchers == 1
        with trio.fail_after(5):
            await left.wait()
        assert watchers == 0


async def test_a_slow_watcher_gets_the_latest_state_not_a_queue_of_old_ones() -> None:
    """GET /lsm/events: what changes while the socket takes nothing is one state when it does again."""
    host = ScriptedHost([ScriptedModel("one")])
    sent: list[bytes] = []
    is_open = trio.Event()

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))
        await is_open.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(StateStream(host, 30.0), {"type": "http"}, trio.sleep_forever, send)
        for move in (host.sleep, host.wake, host.sleep):
            await trio.testing.wait_all_tasks_blocked()
            await move("one")
        await trio.testing.wait_all_tasks_blocked()
        is_open.set()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    frames = [piece for piece in sent if piece]
    assert _sleep_state(frames[-1]) == "asleep" and len(frames) <= 2
    assert all(frame.count(b"data: ") == 1 for frame in frames)


def _sleep_state(event: bytes) -> str:
    state = json.loads(event[event.index(b"data: ") + 6 : event.index(b"\n\n")])
    return str(state["models"][0]["machines"]["sleep"]["state"])
