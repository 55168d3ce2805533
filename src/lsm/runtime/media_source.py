"""Fetches the images and sound that a conversation names: from the web, or from the folder of --media-path (S15).

A URL comes from whoever may ask the server, so it must not lead where only the server can go: each address is looked at before a connection
is made to it, and again behind each redirect.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpcore
import trio

from lsm.chat.media import Download, Inline, LocalFile, Source
from lsm.errors import InvalidRequest, ServerError

MAX_BYTES = 10 * 2**20
TIMEOUT_S = 10.0
MAX_REDIRECTS = 5
MAX_FILE_BYTES = 64 * 2**20
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def fetch_all(sources: Sequence[Source], media_path: Path | None, *, private_urls: bool) -> tuple[bytes, ...]:
    """The bytes of each, in order.

    Raises:
        InvalidRequest: there is no such file, or an address that must not be fetched.
        ServerError: a download failed.
    """
    found: list[bytes] = []
    for source in sources:
        match source:
            case Inline(data):
                found.append(data)
            case LocalFile(name):
                found.append(await trio.to_thread.run_sync(read_file, name, media_path))
            case Download(url):
                found.append(await download(url, private_urls=private_urls))
    return tuple(found)


def read_file(name: str, media_path: Path | None) -> bytes:
    """A regular file below the folder; links may not lead out of it.  Raises `InvalidRequest`."""
    if media_path is None:
        raise InvalidRequest("file:// needs a server that was started with --media-path")
    folder = media_path.resolve()
    missing = InvalidRequest(f"there is no file {name!r} in the folder of --media-path")
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder):
            raise missing
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise missing
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        raise missing from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{name!r} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


async def download(url: str, *, private_urls: bool) -> bytes:
    """At most `MAX_BYTES` in `TIMEOUT_S`.  Raises `InvalidRequest`, `ServerError`."""
    with trio.move_on_after(TIMEOUT_S):
        try:
            backend = _Guarded(private_urls)
            async with httpcore.AsyncConnectionPool(network_backend=backend, max_connections=1) as pool:
                return await _follow(pool, url)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError) as error:
            raise _failed(str(error) or type(error).__name__) from None
        except (ValueError, LookupError):  # httpcore parses URLs by its own rules
            raise InvalidRequest("the URL of an image cannot be read") from None
    raise _failed(f"it took longer than {TIMEOUT_S:.0f} s")


async def _follow(pool: httpcore.AsyncConnectionPool, url: str) -> bytes:
    target = httpcore.URL(url)
    for _ in range(MAX_REDIRECTS + 1):
        async with pool.stream("GET", target, headers={"User-Agent": "lsm-server", "Accept": "*/*"}) as response:
            headers = {name.lower(): value for name, value in response.headers}
            location = headers.get(b"location") if 300 <= response.status < 400 else None
            if location is None:
                return await _body(response, headers.get(b"content-length", b"0"))
        target = _joined(target, location.decode("ascii"))
    raise _failed(f"more than {MAX_REDIRECTS} redirects")


async def _body(response: Any, claimed_bytes: bytes) -> bytes:
    if not 200 <= response.status < 300:
        raise _failed(f"the answer was {response.status}")
    if int(claimed_bytes) > MAX_BYTES:  # httpcore leaves a body that is not read to its end to the collector
        raise _failed(f"it is larger than {MAX_BYTES >> 20} MiB")
    data = bytearray()
    async with aclosing(response.aiter_stream()) as pieces:
        async for piece in pieces:
            data += piece
            if len(data) > MAX_BYTES:
                raise _failed(f"it is larger than {MAX_BYTES >> 20} MiB")
    return bytes(data)


def _joined(base: httpcore.URL, location: str) -> httpcore.URL:
    port = f":{base.port}" if base.port else ""
    joined = urljoin(f"{base.scheme.decode()}://{base.host.decode()}{port}{base.target.decode()}", location)
    if urlsplit(joined).scheme not in ("http", "https"):
        raise InvalidRequest("a redirect leads to something that is not http")
    return httpcore.URL(joined)


def _failed(reason: str) -> ServerError:
    return ServerError(f"Failed to download image: {reason}")


class _Guarded(httpcore.AsyncNetworkBackend):
    """Connects to public addresses alone, and to exactly the one that was looked at."""

    def __init__(self, private_urls: bool) -> None:
        self._inner = httpcore.TrioBackend()
        self._private_urls = private_urls

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> Any:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self._private_urls and (refused := first_private(addresses)):
            raise InvalidRequest(f"{host} is {refused}, which is no public address; --media-private-urls allows that")
        return await self._inner.connect_tcp(addresses[0], port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Any = None) -> Any:
        raise InvalidRequest("a URL cannot name a socket")

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


def _inner(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def first_private(addresses: Iterable[str]) -> str:
    """The first that is not a public unicast address of the internet; empty: all are."""
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        inner = _inner(address)
        if not (address.is_global and inner.is_global) or address.is_multicast:
            return text
    return ""
