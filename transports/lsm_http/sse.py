"""Server-sent events: framing, and the sending of a stream with pings."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import trio
from starlette.types import Send

from lsm_http.outbox import Outbox

PING = b":\n\n"
LAST_WORDS_S = 1.0  # less than a server that stops leaves its connections
DONE = b"data: [DONE]\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy that collects would turn a stream into a lump
]


def frame(data: Any) -> bytes:
    """One event.  JSON has no raw line breaks, so one `data:` line is enough."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


async def send_outbox(outbox: Outbox, send: Send, ping_interval_s: float, *, cut_off: bytes = b"") -> None:
    """Send what the outbox holds until it is closed.  The response starts with the first piece; silence is broken by pings.

    Cancelled in the middle, it sends what is there, and `cut_off` if that is not all: the event that says why.
    """
    piece = await outbox.take(math.inf)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    try:
        while piece is not None:
            await send({"type": "http.response.body", "body": piece or PING, "more_body": True})
            piece = b""
            piece = await outbox.take(ping_interval_s)
    except trio.Cancelled:
        rest, is_all = outbox.take_rest()
        last = (piece or b"") + rest + (b"" if is_all else cut_off)
        with trio.move_on_after(LAST_WORDS_S, shield=True):
            await send({"type": "http.response.body", "body": last, "more_body": True})
            await _end(send)
        raise
    await _end(send)


async def _end(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def interval_s(asked_s: int | None, default_s: float) -> float:
    """-1 means never."""
    wanted = default_s if asked_s is None else asked_s
    return math.inf if wanted < 0 else max(float(wanted), 1.0)
