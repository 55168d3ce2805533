"""Each guard, and what happens without it: a guard whose absence nobody notices is not needed, or not tested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import h2.config
import h2.connection
import h2.events
import h11
import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config
from lsm_http import guards
from lsm_http.connections import Connections
from lsm_http.errors import HttpError
from lsm_http.guards import Guarded
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.transports.http.served import read_all, read_until, request

BODY_LIMIT = 3_000_000
LARGE_BODY = b"x" * 2_000_000  # more pieces than hypercorn's queue has places

WEBSOCKET_WITH_A_BYTE_TOO_MANY = (
    b"GET /ws HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\nx"
)


async def answer_early(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers without looking at the body."""
    if scope["type"] == "http":
        await PlainTextResponse("early")(scope, receive, send)


async def read_body(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        text = str(len(await Request(scope, receive).body()))
        status = 200
    except HttpError as error:
        text, status = error.message, error.status
    await PlainTextResponse(text, status)(scope, receive, send)


@asynccontextmanager
async def guarded_server(app: ASGIApp, **options: float) -> AsyncIterator[int]:
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        guarded = Guarded(app, max_body_bytes=BODY_LIMIT, **options)  # type: ignore[arg-type]
        nursery.start_soon(partial(Connections(guarded, 5.0).serve, listeners, grace_s=0.3))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def with_lifespan(app: ASGIApp) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        while scope["type"] == "lifespan":
            await send({"type": f"{(await receive())['type']}.complete"})
        await app(scope, receive, send)

    return wrapped


@asynccontextmanager
async def bare_server(app: ASGIApp) -> AsyncIterator[int]:
    """hypercorn as it is."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    config.graceful_timeout = 0.0
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(hypercorn.trio.serve, with_lifespan(app), config))
        yield int(url.rpartition(":")[2])
        nursery.cancel_scope.cancel()


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


# ---- one connection's mistake ends only that connection ------------------------------------------------------------------------


async def test_a_websocket_with_a_byte_too_many_ends_only_itself() -> None:
    """Design 8 (1)."""
    async with guarded_server(answer_early) as port:
        async with await connect(port) as hostile:
            await hostile.send_all(WEBSOCKET_WITH_A_BYTE_TOO_MANY)
            await read_all(hostile)
        async with await connect(port) as client:
            await client.send_all(request("GET", "/"))
            assert b"early" in await read_until(client, b"early")


async def test_without_the_guard_it_ends_the_server() -> None:
    """Design 8 (1): why the guard is there."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with bare_server(answer_early) as port, await connect(port) as hostile:
            await hostile.send_all(WEBSOCKET_WITH_A_BYTE_TOO_MANY)
            await read_all(hostile)
            await trio.sleep_forever()
    assert caught.value.subgroup(h11.LocalProtocolError)


async def post_early_over_http2(port: int) -> set[int]:
    """Two requests on one HTTP/2 connection; most of the first one's body is sent after its answer.  The streams that were answered."""
    http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    http2.initiate_connection()
    answered: set[int] = set()
    async with await connect(port) as client:
        for stream_id in (1, 3):
            http2.send_headers(stream_id, [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "here")])
            http2.send_data(stream_id, b"first")
            await client.send_all(http2.data_to_send())
            if not await _is_answered(stream_id, http2, client, answered):
                break
            http2.send_data(stream_id, b"second", end_stream=True)
            await client.send_all(http2.data_to_send())
    return answered


async def _is_answered(stream_id: int, http2: h2.connection.H2Connection, client: trio.SocketStream, answered: set[int]) -> bool:
    """False if the server closes the connection instead."""
    with trio.fail_after(2):
        while stream_id not in answered:
            if not (data := await client.receive_some()):
                return False
            answered |= {event.stream_id for event in http2.receive_data(data) if isinstance(event, h2.events.DataReceived)}
    return True


async def test_an_http2_post_answered_early() -> None:
    """Design 8 (1), (2): HTTP/2 by prior knowledge; the rest of the body is not a mistake."""
    async with guarded_server(answer_early) as port:
        assert await post_early_over_http2(port) == {1, 3}
        assert await post_early_over_http2(port) == {1, 3}


async def test_without_the_guard_an_http2_post_ends_the_server() -> None:
    """Design 8 (1): why the guard is there."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with bare_server(answer_early) as port:
            await post_early_over_http2(port)
            await trio.sleep_forever()
    assert caught.value.subgroup(KeyError)


# ---- a body that nobody reads ----------------------------------------------------------------------------------------------------


async def test_an_early_answer_leaves_the_connection_in_step() -> None:
    """Design 8 (2): the answer comes although the body was not read, and the next request of the connection is served."""
    async with guarded_server(answer_early) as port, await connect(port) as client:
        for _ in range(2):
            await client.send_all(request("POST", "/", LARGE_BODY))
            assert b"early" in await read_until(client, b"early")


async def test_without_the_guard_the_connection_is_stuck() -> None:
    """Design 8 (2): why the pump is there."""
    async with bare_server(answer_early) as port, await connect(port) as client:
        with pytest.raises((trio.TooSlowError, trio.BrokenResourceError, AssertionError)):
            for _ in range(2):
                with trio.fail_after(0.5):
                    await client.send_all(request("POST", "/", LARGE_BODY))
                    assert b"early" in await read_until(client, b"early", 0.5)


@pytest.mark.parametrize("is_announced", [True, False])
async def test_a_body_over_the_limit_is_refused_and_drained(is_announced: bool) -> None:
    """A 100 MB body: 413 and a connection that goes on, whether the size was announced or not."""
    size = BODY_LIMIT + 1
    chunked = b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (size, b"x" * size)
    async with guarded_server(read_body) as port, await connect(port) as client:
        await client.send_all(request("POST", "/", b"x" * size) if is_announced else chunked)
        assert (await read_until(client, b"reads")).startswith(b"HTTP/1.1 413")
        await client.send_all(request("POST", "/", b"x" * BODY_LIMIT))
        assert str(BODY_LIMIT).encode() in await read_until(client, str(BODY_LIMIT).encode())


async def test_an_announced_size_is_refused_before_it_is_sent() -> None:
    """A client that waits for the answer before it sends its 100 MB need not send them."""
    async with guarded_server(read_body) as port, await connect(port) as client:
        await client.send_all(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100000000\r\n\r\n")
        assert (await read_until(client, b"reads")).startswith(b"HTTP/1.1 413")


async def test_a_body_that_does_not_come_is_not_awaited_for_ever() -> None:
    """A slow client: 408 after the timeout, and the connection ends."""
    async with guarded_server(read_body, timeout_s=0.1, drain_s=0.1) as port, await connect(port) as client:
        await client.send_all(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nab")
        assert (await read_all(client)).startswith(b"HTTP/1.1 408")


# ---- the client goes away ----------------------------------------------------------------------------------------------------------


class Waits:
    """An application that never ends by itself, and says when it was cancelled."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.cancelled = trio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.started.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()


@pytest.mark.parametrize("is_half", [True, False])
async def test_a_client_that_goes_cancels_its_request(is_half: bool) -> None:
    """Design 8 (5): also one that only closes its sending half; llama-server does not tell them apart either."""
    app = Waits()
    async with guarded_server(app) as port, await connect(port) as client:
        await client.send_all(request("GET", "/"))
        await app.started.wait()
        await (client.send_eof() if is_half else client.aclose())
        with trio.fail_after(5):
            await app.cancelled.wait()


async def test_without_the_guard_the_request_goes_on() -> None:
    """Design 8 (5): why somebody must listen for the disconnect."""
    app = Waits()
    async with bare_server(app) as port:
        async with await connect(port) as client:
            await client.send_all(request("GET", "/"))
            await app.started.wait()
        with trio.move_on_after(0.3):
            await app.cancelled.wait()
        assert not app.cancelled.is_set()


# ---- a send is never cut in two ------------------------------------------------------------------------------------------------------


async def cancel_in_last_send(scope: Scope, receive: Receive, send: Send) -> None:
    with trio.CancelScope() as scope_:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        scope_.cancel()
        await send({"type": "http.response.body", "body": b"early", "more_body": False})


async def test_an_application_cancelled_in_its_last_send_still_ends_the_connection() -> None:
    """Design 8 (3)."""
    async with guarded_server(cancel_in_last_send) as port, await connect(port) as client:
        await client.send_all(request("GET", "/"))
        assert b"early" in await read_all(client, 2.0)


async def test_without_the_shield_the_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 8 (3): why sends are shielded."""

    def bare_send(send: Send, body: guards.BodyPump, drain_s: float) -> Send:
        async def passed_on(message: Message) -> None:
            await send(message)

        return passed_on

    monkeypatch.setattr(guards, "ShieldedSend", bare_send)
    async with guarded_server(cancel_in_last_send) as port, await connect(port) as client:
        await client.send_all(request("GET", "/"))
        with pytest.raises((trio.TooSlowError, AssertionError)):
            assert b"early" in await read_all(client, 0.5)


async def test_a_cancelled_connection_is_closed() -> None:
    """Design 8 (3): hypercorn's own close waits, so cancelling skips it; a client must not be left with an open socket."""
    app = Waits()
    connections = Connections(Guarded(app), 5.0)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(connections.serve, [listener])
        client = await connect(listener.socket.getsockname()[1])
        await client.send_all(request("GET", "/"))
        await app.started.wait()
        (stream,) = connections._open
        nursery.cancel_scope.cancel()
    assert stream.socket.fileno() == -1
    await client.aclose()


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_connection_that_its_client_has_left_is_over(is_used: bool) -> None:
    """hypercorn keeps its idle timer running, and the socket in CLOSE_WAIT, for the whole keep-alive time."""
    connections = Connections(Guarded(read_body), keep_alive_s=3600.0)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(connections.serve, [listener])
        async with await connect(listener.socket.getsockname()[1]) as client:
            if is_used:
                await client.send_all(request("POST", "/", b"1234567"))
                await read_until(client, b"\r\n\r\n7")
            while not connections._open:
                await trio.sleep(0)
        with trio.fail_after(5):
            while connections._open:
                await connections._changed.wait()
        nursery.cancel_scope.cancel()
