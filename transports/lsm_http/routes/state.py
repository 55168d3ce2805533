"""GET /lsm/state and /lsm/events: what is where, and why.  POST /lsm/sleep and /lsm/wake: change it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lsm.api import Host
from lsm_http.bodies import ModelName, parse
from lsm_http.context import Context
from lsm_http.errors import json_response
from lsm_http.outbox import Outbox
from lsm_http.sse import frame, interval_s, send_outbox


def make_routes(context: Context) -> list[Route]:
    host = context.host

    async def state(request: Request) -> Response:
        return json_response(host.state())

    async def events(request: Request) -> ASGIApp:
        return StateStream(host, interval_s(None, context.settings.sse_ping_interval_s))

    async def sleep(request: Request) -> Response:
        return await _move(request, host, host.sleep)

    async def wake(request: Request) -> Response:
        return await _move(request, host, host.wake)

    return [
        Route("/lsm/state", state),
        Route("/lsm/events", events),
        Route("/lsm/sleep", sleep, methods=["POST"]),
        Route("/lsm/wake", wake, methods=["POST"]),
    ]


async def _move(request: Request, host: Host, move: Callable[[str], Awaitable[None]]) -> Response:
    """Answers when it is done."""
    data = await request.body()
    name = parse(data, ModelName).model if data else None
    alias = host.model(name or "").alias
    await move(alias)
    info = host.model(alias)
    return json_response({"model": alias, "load_state": info.load_state, "sleep_state": info.sleep_state})


@dataclass(frozen=True, slots=True)
class StateStream:
    """The state now, and after each change.  A reader who is slow misses states in between, never the latest."""

    host: Host
    ping_interval_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outbox = Outbox(limit_bytes=0)  # replaced, never filled
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_outbox, outbox, send, self.ping_interval_s)
            async with self.host.changes() as states:
                async for state in states:
                    outbox.replace_nowait(frame(state))
            outbox.close()
