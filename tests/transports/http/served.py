"""A real server on a free port, in the test's nursery, over a host without a model."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import trio
from lsm_http import serve

from lsm.config import Settings, parse_arguments
from tests.transports.scripted_host import ScriptedHost, open_scripted_host


@dataclass
class Served:
    url: str
    port: int
    host: ScriptedHost
    scope: trio.CancelScope
    ended: trio.Event = field(default_factory=trio.Event)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=self.url, timeout=5, **options) as client:
            yield client

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def connect_narrow(self) -> trio.SocketStream:
        """A client whose kernel takes little, so that a server's sends are soon stuck when it does not read."""
        sock = trio.socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await sock.connect(("127.0.0.1", self.port))
        return trio.SocketStream(sock)

    async def slot_is_free(self, model: str = "") -> None:
        """Waits until no request is in the model's slot."""
        async with self.host.changes() as states:
            async for _ in states:
                if self.host.scripted(model).slot_state == "idle":
                    return

    async def slot_is_taken(self, model: str = "") -> None:
        async with self.host.changes() as states:
            async for _ in states:
                if self.host.scripted(model).slot_state != "idle":
                    return


def settings_of(*arguments: str, models: tuple[str, ...] = ("one.gguf",)) -> Settings:
    files = [part for model in models for part in ("-m", model)]
    return parse_arguments([*files, "--port", "0", *arguments], {})


@asynccontextmanager
async def served(
    *arguments: str, models: tuple[str, ...] = ("one.gguf",), host_class: type[ScriptedHost] | None = None
) -> AsyncIterator[Served]:
    """On leaving, the server is stopped, and must stop within a few seconds."""
    hosts: list[ScriptedHost] = []

    @asynccontextmanager
    async def open_host(settings: Settings) -> AsyncIterator[ScriptedHost]:
        async with open_scripted_host(settings) as host:
            if host_class is not None:
                host = host_class(list(host._models.values()))
            hosts.append(host)
            yield host

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(partial(serve, settings_of(*arguments, models=models), open_host=open_host))
            yield Served(url, httpx.URL(url).port or 0, hosts[0], nursery.cancel_scope)
            nursery.cancel_scope.cancel()


async def read_until(stream: trio.SocketStream, mark: bytes, limit_s: float = 5.0) -> bytes:
    """What comes up to and including `mark`; less if the other side ends before."""
    data = b""
    with trio.fail_after(limit_s):
        while mark not in data:
            more = await stream.receive_some()
            if not more:
                return data
            data += more
    return data


async def read_all(stream: trio.SocketStream, limit_s: float = 5.0) -> bytes:
    """Everything until the other side closes."""
    return await read_until(stream, b"\0never\0", limit_s)


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body
