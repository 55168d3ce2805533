"""Streams of several answers at once, read with as little work as possible: the client shares its cores with what it measures."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16
WAIT_S = 600.0


@dataclass
class Stream:
    """`first_s`, `last_s`: since the requests were sent, until the first event came and until the stream ended."""

    first_s: float = 0.0
    last_s: float = 0.0
    data: bytearray = field(default_factory=bytearray)

    def last_event(self) -> dict[str, Any]:
        """What tells how it ended.  Raises RuntimeError: there is none; the answer is an error."""
        lines = [line for line in bytes(self.data).splitlines() if line.startswith(b"data: {")]
        event = json.loads(lines[-1][6:]) if lines else {}
        if not event.get("stop"):
            raise RuntimeError(f"not the end of an answer: {bytes(self.data[-500:])!r}")
        return dict(event)


def stream(url: str, bodies: Sequence[Mapping[str, Any]]) -> list[Stream]:
    """POST /completion, all at once, each on a connection of its own."""
    address = urlsplit(url)
    with selectors.DefaultSelector() as selector:
        start_s = time.perf_counter()
        streams = [Stream() for _ in bodies]
        for body, each in zip(bodies, streams, strict=True):
            connection = socket.create_connection((address.hostname, address.port), timeout=WAIT_S)
            connection.sendall(_request({**body, "stream": True}))
            selector.register(connection, selectors.EVENT_READ, each)
        while selector.get_map():
            ready = selector.select(WAIT_S)
            if not ready:
                raise RuntimeError(f"nothing came for {WAIT_S:.0f} s")
            for key, _ in ready:
                _read(selector, key.fileobj, key.data, start_s)
    return streams


def _request(body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    headers = {"Host": "server", "Connection": "close", "Content-Type": "application/json", "Content-Length": len(data)}
    lines = ["POST /completion HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + data


def _read(selector: selectors.BaseSelector, connection: Any, stream: Stream, start_s: float) -> None:
    chunk = connection.recv(CHUNK_BYTES)
    now_s = time.perf_counter() - start_s
    stream.data += chunk
    if not stream.first_s and b"data: " in stream.data:
        stream.first_s = now_s
    if not chunk:
        stream.last_s = now_s
        selector.unregister(connection)
        connection.close()
