"""One generation as one response: whole, or as a stream."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lsm.api import Finish, Progress, Text
from lsm.errors import LsmError, ServerError
from lsm_http.errors import error_body, json_response, server_error, stopping
from lsm_http.openai_format import Format, Summary, timings
from lsm_http.outbox import Outbox, OutboxFull
from lsm_http.sse import frame, send_outbox

log = logging.getLogger("lsm.http")

MAX_UNSENT_BYTES = 4 * 2**20

Event = Text | Progress | Finish
Answer = AbstractAsyncContextManager[AsyncIterator[Event]]


async def whole(answer: Answer, format: Format) -> Response:
    texts: defaultdict[int, list[Text]] = defaultdict(list)
    finishes: list[Finish] = []
    async with answer as events:
        async for event in events:
            if isinstance(event, Text):
                texts[event.index].append(event)
            elif isinstance(event, Finish):
                finishes.append(event)
    if not finishes:
        raise ServerError("the generation ended without saying how")
    return json_response(format.whole([(texts[finish.index], finish) for finish in _in_order(finishes)]))


@dataclass(frozen=True, slots=True)
class AnswerStream:
    """An ASGI response.  An error before the first event is raised, and so becomes an HTTP status; a later one is a frame."""

    answer: Answer
    format: Format
    n_choices: int
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
        writer = _Writer(self.format, self.n_choices, self.include_usage)
        try:
            async with self.answer as events:
                async for event in events:
                    is_started = True
                    for chunk in writer.chunks(event):
                        outbox.put_nowait(frame(chunk))
        except OutboxFull:
            outbox.close(frame(error_body(ServerError("the client reads too slowly; the rest of the answer was dropped"))))
        except Exception as error:
            if not is_started:
                return error
            outbox.close(frame(error_body(_told(error))))
        else:
            outbox.close(self.format.end)
        return None


class _Writer:
    """What each event of an answer becomes in a stream."""

    def __init__(self, format: Format, n_choices: int, include_usage: bool) -> None:
        self._format = format
        self._n_choices = n_choices
        self._include_usage = include_usage
        self._opened: set[int] = set()
        self._finishes: list[Finish] = []

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case Progress():
                return [{**self._format.blank(), "prompt_progress": asdict(event)}]
            case Text():
                chunk = self._format.text(event)
                if event.timings is not None:
                    chunk["timings"] = timings(event.timings)
                return [*self._opening(event.index), chunk]
            case Finish():
                return [*self._opening(event.index), *self._closing(event)]

    def _opening(self, index: int) -> list[dict[str, Any]]:
        if index in self._opened:
            return []
        self._opened.add(index)
        return self._format.opening(index)

    def _closing(self, finish: Finish) -> list[dict[str, Any]]:
        self._finishes.append(finish)
        is_last = len(self._finishes) == self._n_choices
        return self._format.closing(finish, Summary(_in_order(self._finishes), self._include_usage) if is_last else None)


def _in_order(finishes: Sequence[Finish]) -> list[Finish]:
    return sorted(finishes, key=lambda finish: finish.index)


def _told(error: Exception) -> LsmError:
    if isinstance(error, LsmError):
        return error
    log.error("a generation failed in the middle of its answer", exc_info=error)
    return server_error()
