"""What stands between hypercorn and the application, for each request.

Four facts of hypercorn 0.18 make it necessary: it has no limit for bodies; a request that is answered before its body has been read
blocks its connection for good; it does not cancel an application whose client has gone; and an application that is cancelled within
its last send leaves the connection open.
"""

from __future__ import annotations

import math
from collections import deque

import trio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lsm_http.errors import body_too_large, body_too_slow

MAX_BODY_BYTES = 32 * 2**20
DRAIN_S = 10.0  # how long the rest of an unread body is awaited after an early answer


class Guarded:
    """An ASGI application around another one."""

    def __init__(
        self, app: ASGIApp, *, timeout_s: float = math.inf, max_body_bytes: int = MAX_BODY_BYTES, drain_s: float = DRAIN_S
    ) -> None:
        self._app = app
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._drain_s = drain_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _refuse(scope, send)
            return
        body = BodyPump(receive, Headers(scope=scope), self._max_body_bytes, self._timeout_s)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(body.pump, nursery.cancel_scope)
            await self._app(scope, body.receive, ShieldedSend(send, body, self._drain_s))
            nursery.cancel_scope.cancel()


class BodyPump:
    """Takes everything that the client sends, wanted or not, so that its going away is always seen."""

    def __init__(self, receive: Receive, headers: Headers, max_bytes: int, timeout_s: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._messages: deque[Message] = deque()
        self._size_bytes = 0
        self._is_too_large = _announced_bytes(headers) > max_bytes
        self._arrived = trio.Event()
        self.ended = trio.Event()  # the body is complete, or the client has gone
        self.client_has_gone = False

    async def pump(self, cancel_scope: trio.CancelScope) -> None:
        """Until the client goes away; then the request is cancelled."""
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                self.client_has_gone = True
                self.ended.set()
                cancel_scope.cancel()
                return
            self._take(message)

    async def receive(self) -> Message:
        """What the application calls.  Raises `HttpError` 413 or 408."""
        while not self._messages and not self._is_too_large:
            self._arrived = trio.Event()
            with trio.move_on_after(self._timeout_s) as waiting:
                await self._arrived.wait()
            if waiting.cancelled_caught:
                raise body_too_slow(self._timeout_s)
        if self._is_too_large:
            raise body_too_large(self._max_bytes)
        return self._messages.popleft()

    def _take(self, message: Message) -> None:
        self._size_bytes += len(message.get("body", b""))
        if self._size_bytes > self._max_bytes:
            self._is_too_large = True
            self._messages.clear()
        if not self._is_too_large:
            self._messages.append(message)
        if not message.get("more_body", False):
            self.ended.set()
        self._arrived.set()


class ShieldedSend:
    """Never cancelled half way.  The end of a response waits for the end of the request, so that the connection stays in step.

    The client has the whole answer by then, unless it reads only after it has written everything: then it gets the answer now,
    where a connection closed at once would have thrown it away.
    """

    def __init__(self, send: Send, body: BodyPump, drain_s: float) -> None:
        self._send = send
        self._body = body
        self._drain_s = drain_s

    async def __call__(self, message: Message) -> None:
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not is_last:
            # hypercorn takes what is sent to a closed connection, at once and in silence: without this nobody else would ever run.
            await trio.lowlevel.checkpoint()
        if self._body.client_has_gone:
            return
        if not is_last or self._body.ended.is_set():
            await self._send_shielded(message)
            return
        await self._send_shielded({**message, "more_body": True})
        try:
            with trio.move_on_after(self._drain_s):
                await self._body.ended.wait()
        finally:
            await self._send_shielded({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_shielded(self, message: Message) -> None:
        with trio.CancelScope(shield=True):
            await self._send(message)


def _announced_bytes(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
