"""The sockets that the server listens on, and how they are called."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

from lsm.errors import ConfigError

BACKLOG = 512
KEEP_ALIVE_IDLE_S = 60  # a peer that lost its power is noticed, even where a stream is silent


def listen(hosts: str, port: int, timeout_s: int) -> list[socket.socket]:
    """One socket for each host of the comma list; `*.sock` is a Unix socket.  Port 0 takes a free one, the same for all hosts.

    A client that takes no data for `timeout_s` is cut off by the kernel.  Raises `ConfigError` that names the address.
    """
    sockets: list[socket.socket] = []
    try:
        for host in filter(None, map(str.strip, hosts.split(","))):
            sock = _listen_unix(Path(host)) if host.endswith(".sock") else _listen_tcp(host, port, timeout_s)
            sockets.append(sock)
            if sock.family != socket.AF_UNIX:
                port = sock.getsockname()[1]
        if not sockets:
            raise ConfigError("--host names no address; leave it out for 127.0.0.1")
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def url_of(sock: socket.socket) -> str:
    """What a client of this machine can call; a wildcard address is not something to connect to."""
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen_tcp(host: str, port: int, timeout_s: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host: there is no address {host!r} ({getattr(error, 'strerror', error)})") from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(timeout_s * 1000, 2**31 - 1))  # accepted sockets inherit it
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror}; choose another one with --host or --port") from None
    return sock


def _listen_unix(path: Path) -> socket.socket:
    with contextlib.suppress(OSError):  # a dead server's socket is in the way; anything else is not ours to delete
        if stat.S_ISSOCK(os.stat(path).st_mode) and not _is_answered(path):
            path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {path}: {error.strerror or error}; choose another one with --host") from None
    return sock


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
