"""Clients that misbehave, by accident or on purpose: each one may harm itself only."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import trio
import trio.testing
from lsm_http.connections import Connections
from lsm_http.guards import Guarded
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.transports.http.flood import FloodHost
from tests.transports.http.served import Served, read_all, read_until, request, served


def completion(prompt: str, stream: bool = True) -> bytes:
    return request("POST", "/v1/completions", json.dumps({"prompt": prompt, "stream": stream}).encode())


async def is_served(server: Served) -> bool:
    async with server.client() as client:
        return (await client.post("/v1/completions", json={"prompt": "abc"})).status_code == 200


@pytest.mark.parametrize("is_half", [True, False])
async def test_a_client_that_vanishes_in_mid_stream_frees_its_slot(server: Served, is_half: bool) -> None:
    """B.0: a disconnect cancels the generation; the one slot is free for the next request."""
    client = await server.connect()
    async with client:
        await client.send_all(completion("x[stall]"))
        await read_until(client, b"data: ")
        if is_half:
            await client.send_eof()
            await server.slot_is_free()
    await server.slot_is_free()
    assert await is_served(server)


async def test_a_client_that_vanishes_before_the_first_byte_frees_its_slot(server: Served) -> None:
    """B.0: also where nothing has been answered yet."""
    async with await server.connect() as first, await server.connect() as second:
        await first.send_all(completion("x[stall]"))
        await read_until(first, b"data: ")
        await second.send_all(completion("y", stream=False))  # waits for the slot
        while not server.host.counters("").requests_waiting:
            await trio.sleep(0)
    await server.slot_is_free()
    assert server.host.counters("").requests_waiting == 0
    assert await is_served(server)


async def test_a_client_that_stops_reading_holds_no_slot() -> None:
    """Design 8 (4): the generation goes on into a bounded box, and ends when that is full."""
    async with served(host_class=FloodHost) as server, await server.connect() as client:
        await client.send_all(completion("[flood]"))
        await server.slot_is_taken()
        with trio.fail_after(10):
            await server.slot_is_free()
        assert await is_served(server)
        assert b"reads too slowly" in await read_until(client, b"reads too slowly", 10)


@pytest.mark.slow
async def test_a_client_that_stops_reading_does_not_hold_up_the_end() -> None:
    """Design 8 (4): shutdown is bounded."""
    with trio.fail_after(5):
        async with served(host_class=FloodHost) as server:
            client = await server.connect_narrow()
            await client.send_all(completion("[flood]"))
            await server.slot_is_taken()
            await server.slot_is_free()  # the box is full and the send is stuck
    await client.aclose()


async def flood(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})


@pytest.mark.parametrize(("grace_s", "ends"), [(0.2, True), (math.inf, False)])
async def test_closing_the_socket_is_what_ends_a_stuck_send(grace_s: float, ends: bool) -> None:
    """Design 8 (4): and without it a server could wait for such a client for ever."""
    ended = trio.Event()

    async def run(port: trio.MemorySendChannel[int], scope: trio.CancelScope) -> None:
        with scope:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            await port.send(listener.socket.getsockname()[1])
            await Connections(Guarded(flood), 5.0).serve([listener], grace_s)
        ended.set()

    ports, scope = trio.open_memory_channel[int](1), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, ports[0], scope)
        async with await trio.open_tcp_stream("127.0.0.1", await ports[1].receive()) as client:
            await client.send_all(request("GET", "/"))
            await read_until(client, b"xxxx")
            await trio.testing.wait_all_tasks_blocked(0.05)  # the kernel's buffers are full, the send is stuck
            scope.cancel()
            with trio.move_on_after(0.6):
                await ended.wait()
            assert ended.is_set() is ends


async def test_a_request_that_dribbles_in_is_answered(server: Served) -> None:
    """A slow client is not a wrong one."""
    async with await server.connect() as client:
        for byte in completion("abc", stream=False):
            await client.send_all(bytes([byte]))
        assert b'"text":"abc"' in await read_until(client, b'"text":"abc"')


async def test_a_request_that_never_comes_is_not_awaited_for_ever() -> None:
    """A connection without a request ends after the keep-alive time, even if half a request has come."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("never")(scope, receive, send)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(Connections(Guarded(app), keep_alive_s=0.1).serve, [listener]))
        async with await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1]) as client:
            await client.send_all(b"GET / HTTP/1.1\r\nHost: he")
            assert await read_all(client, 3.0) == b""
        nursery.cancel_scope.cancel()


async def test_pipelined_requests_are_answered_in_order(server: Served) -> None:
    """HTTP/1.1: three requests in one packet."""
    async with await server.connect() as client:
        await client.send_all(completion("one", stream=False) + request("GET", "/health") + completion("two", stream=False))
        data = await read_until(client, b'"text":"two"')
    assert data.index(b'"text":"one"') < data.index(b'{"status":"ok"}') < data.index(b'"text":"two"')


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100,
        b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\nx",
        b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nHTTP2-Settings: !!!\r\n\r\n",
    ],
    ids=["nonsense", "huge header", "no length", "bad chunk", "bad UTF-8", "bad target", "TLS", "bad HTTP/2", "websocket", "h2c"],
)
async def test_what_is_no_request_harms_nobody(server: Served, data: bytes) -> None:
    """Design 8 (1): whatever comes, the next client is served."""
    async with await server.connect() as hostile:
        await hostile.send_all(data)
        with trio.move_on_after(0.2):
            await read_all(hostile)
    assert await is_served(server)


@pytest.mark.parametrize("body", [b"", b"{", b'{"prompt": "\xff"}', b"[" * 200_000], ids=["empty", "cut", "bad UTF-8", "deep"])
async def test_malformed_json_is_a_bad_request(server: Served, body: bytes) -> None:
    """B.0: 400, not 500; the connection goes on."""
    async with await server.connect() as client:
        await client.send_all(request("POST", "/v1/chat/completions", body))
        data = await read_until(client, b"}}")
        assert data.startswith(b"HTTP/1.1 400") and b'"type":"invalid_request_error"' in data
        await client.send_all(request("GET", "/health"))
        assert b'{"status":"ok"}' in await read_until(client, b"}")


@pytest.mark.slow
async def test_a_body_of_100_mb(server: Served) -> None:
    """100 MB in chunks, so that no header announces it: 413, and the same connection goes on."""
    piece = b"x" * 2**20
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    async with await server.connect() as client:
        await client.send_all(b"POST /v1/completions HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            await client.send_all(chunk)
        await client.send_all(b"0\r\n\r\n")
        data = await read_until(client, b"}}")
        assert data.startswith(b"HTTP/1.1 413") and b"larger than 32 MiB" in data
        await client.send_all(request("GET", "/health"))
        assert b'{"status":"ok"}' in await read_until(client, b'"ok"}')


@pytest.mark.slow
async def test_a_client_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """--timeout: the kernel ends the connection of a client that takes no data for so long; here it takes one or two seconds."""
    closed = trio.Event()
    handle = Connections._handle

    async def observed(self: Connections, stream: trio.SocketStream) -> None:
        await handle(self, stream)
        closed.set()

    monkeypatch.setattr(Connections, "_handle", observed)
    async with served("--timeout", "1", host_class=FloodHost) as server, await server.connect_narrow() as client:
        await client.send_all(completion("[flood]"))
        with trio.fail_after(15):
            await closed.wait()


async def hears_at_the_end(sent: bytes, *, first: bytes = b"") -> bytes:
    """What a client gets that has sent this, and read up to `first`, when the server is then stopped."""
    async with served() as server:
        client = await server.connect()
        await client.send_all(sent)
        if first:
            await read_until(client, first)
        else:
            await trio.testing.wait_all_tasks_blocked(0.05)
    async with client:
        return await read_all(client)


async def test_the_end_of_the_server_ends_a_stream_with_an_error() -> None:
    """B.0: a stream that is cut off says so, and does not say that it is done."""
    data = await hears_at_the_end(completion("abc [stall]"), first=b"data: ")
    last_event, end = data.rsplit(b"data: ", 1)[1].split(b"\n\n", 1)
    assert json.loads(last_event)["error"] == {"code": 503, "message": "The server is stopping", "type": "unavailable_error"}
    assert b"[DONE]" not in data and end.endswith(b"0\r\n\r\n")


async def test_the_end_of_the_server_answers_those_who_wait() -> None:
    """B.0: a request without a first byte yet gets a status, 503 with Retry-After."""
    data = await hears_at_the_end(completion("abc [stall]", stream=False))
    assert data.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in data.lower() and b"The server is stopping" in data


@pytest.mark.slow
async def test_a_client_that_still_writes_does_not_hold_up_the_end() -> None:
    """Design 8 (2): the end of a body that never comes is not awaited."""
    with trio.fail_after(4):
        await hears_at_the_end(b"POST /tokenize HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
