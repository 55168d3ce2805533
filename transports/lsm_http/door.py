"""The application: CORS, key, routes, errors; in this order."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import trio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lsm.api import Host
from lsm.config import Settings
from lsm.errors import LsmError
from lsm_http.auth import is_allowed
from lsm_http.context import Context
from lsm_http.cors import cors_headers, preflight_headers
from lsm_http.errors import HttpError, error_response, file_not_found, server_error, stopping, unauthorized
from lsm_http.routes import (
    adapters,
    chat,
    completions,
    embeddings,
    health,
    metrics,
    models,
    native,
    page,
    props,
    rerank,
    slots,
    state,
    tokens,
)
from lsm_http.sse import LAST_WORDS_S

log = logging.getLogger("lsm.http")

ROOMS = (health, models, props, metrics, slots, adapters, completions, native, chat, embeddings, rerank, tokens, state, page)
SERVER = "llama.cpp"  # clients look for it to know the dialect


def make_door(host: Host, settings: Settings) -> ASGIApp:
    """An ASGI application over `host`; it wants `Guarded` around it."""
    context = Context(host, settings)
    routes = [route for room in ROOMS for route in room.make_routes(context)]
    return Door(Router(routes, redirect_slashes=False, default=_no_such_path), settings)


class Door:
    def __init__(self, router: ASGIApp, settings: Settings) -> None:
        self._router = router
        self._prefix = settings.api_prefix
        self._keys = settings.api_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        reply = Reply(send, {"Server": SERVER, **cors_headers(headers)})
        started_s = time.monotonic()
        try:
            await self._answer(scope, headers, receive, reply)
        except HTTPException as error:
            await reply.fail(_as_ours(error), scope, receive)
        except LsmError as error:
            await reply.fail(error, scope, receive)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await reply.fail(server_error(), scope, receive)
        except trio.Cancelled:  # the server stops; a client that has gone hears nothing of this
            with trio.move_on_after(LAST_WORDS_S, shield=True):
                await reply.fail(stopping(), scope, receive)
            raise
        log.debug("%s %s %s in %.0f ms", scope["method"], scope["path"], reply.status, 1e3 * (time.monotonic() - started_s))

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, reply: Reply) -> None:
        if scope["method"] == "OPTIONS":
            await Response(headers=preflight_headers(headers))(scope, receive, reply)
            return
        path = _without_prefix(scope["path"], self._prefix)
        if not is_allowed(path, headers, self._keys):
            raise unauthorized()
        await self._router({**scope, "path": path, "app": self}, receive, reply)


class Reply:
    """`send`, with the headers that every response has."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send = send
        self._headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], *self._headers]}
        await self._send(message)

    async def fail(self, error: LsmError, scope: Scope, receive: Receive) -> None:
        """Once a response has begun its status cannot be taken back; the connection then ends in the middle, which a client sees."""
        if self.status is None:
            await error_response(error)(scope, receive, self)


def _without_prefix(path: str, prefix: str) -> str:
    rest = path.removeprefix(prefix)
    if not path.startswith(prefix) or not rest.startswith("/"):
        raise file_not_found()
    return rest


def _as_ours(error: HTTPException) -> LsmError:
    """The router raises one only for a method that a path does not have."""
    allowed = (error.headers or {}).get("Allow", "")
    return HttpError(error.status_code, "invalid_request_error", f"{error.detail}; this path has: {allowed}", {"Allow": allowed})


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise file_not_found()
