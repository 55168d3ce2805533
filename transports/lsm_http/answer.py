"""One generation as one response: whole, or as a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lsm.api import Finish, Text
from lsm.errors import LsmError, ServerError
from lsm_http.errors import error_body, json_response, server_error, stopping
from lsm_http.openai_format import Format
from lsm_http.outbox import Outbox, OutboxFull
from lsm_http.sse import frame, send_outbox

log = logging.getLogger("lsm.http")

MAX_UNSENT_BYTES = 4 * 2**20

Answer = AbstractAsyncContextManager[AsyncIterator[Text | Finish]]


async def whole(answer: Answer, format: Format) -> Response:
    texts: list[Text] = []
    finish: Finish | None = None
    async with answer as events:
        async for event in events:
            if isinstance(event, Text):
                texts.append(event)
            else:
                finish = event
    if finish is None:
        raise ServerError("the generation ended without saying how")
    return json_response(format.whole(texts, finish))


@dataclass(frozen=True, slots=True)
class AnswerStream:
    """An ASGI response.  An error before the first event is raised, and so becomes an HTTP status; a later one is a frame."""

    answer: Answer
    format: Format
    include_usage: bool
    ping_interval_s: float
    max_unsent_bytes: int = MAX_UNSENT_BYTES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outbox = Outbox(self.max_unsent_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(send_outbox, outbox, send, self.ping_interval_s, cut_off=frame(error_body(stopping()))))
            early_error = await self._fill(outbox)
            if early_error is not None:
                nursery.cancel_scope.cancel()
        if early_error is not None:
            raise early_error

    async def _fill(self, outbox: Outbox) -> Exception | None:
        """Leaves the generation, and with it the slot, before the client has read everything."""
        is_started = False
        try:
            async with self.answer as events:
                async for event in events:
                    if not is_started:
                        _put_all(outbox, self.format.opening())
                        is_started = True
                    _put_all(outbox, [self.format.text(event)] if isinstance(event, Text) else self._closing(event))
        except OutboxFull:
            outbox.close(frame(error_body(ServerError("the client reads too slowly; the rest of the answer was dropped"))))
        except Exception as error:
            if not is_started:
                return error
            outbox.close(frame(error_body(_told(error))))
        else:
            outbox.close(self.format.end)
        return None

    def _closing(self, finish: Finish) -> list[dict[str, object]]:
        return self.format.closing(finish, self.include_usage)


def _put_all(outbox: Outbox, chunks: list[dict[str, object]]) -> None:
    for chunk in chunks:
        outbox.put_nowait(frame(chunk))


def _told(error: Exception) -> LsmError:
    if isinstance(error, LsmError):
        return error
    log.error("a generation failed in the middle of its answer", exc_info=error)
    return server_error()
