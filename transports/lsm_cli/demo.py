"""`lsm demo`: one server for each demo model on one arena, their logs side by side, and one page to watch them.

No threads and no event loop: one `select` over the servers' outputs, which also tells when a server ends.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from lsm.errors import ConfigError
from lsm.models import models_directory
from lsm_cli.catalogue import DEMO_MODELS

HOST = "127.0.0.1"
ASK_EVERY_S = 0.5
STOP_WITHIN_S = 15.0
PORTS_TRIED = 100
PR_SET_PDEATHSIG = 1


@dataclass
class Server:
    """A running lsm-server, and the piece of its output that is not a whole line yet."""

    alias: str
    port: int
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    answers: bool = False
    is_open: bool = field(default=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"


def demo(first_port: int, environ: Mapping[str, str], out: TextIO) -> int:
    """Run until ctrl-C or SIGTERM (0), or until a server ends by itself (1).  Raises ConfigError: model missing, no free port."""
    folder = models_directory(environ)
    files = {model.name: folder / model.file_name for model in DEMO_MODELS.values()}
    missing = [name for name, path in files.items() if not path.exists()]
    if missing:
        raise ConfigError(f"the demo models are not there yet: run lsm pull {' '.join(missing)}")
    ports = free_ports(first_port, len(files), out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    servers: list[Server] = []
    try:
        for (alias, path), port in zip(files.items(), ports, strict=True):
            servers.append(_start(alias, path, port, [other for other in ports if other != port]))
        _relay(servers, out)
    except KeyboardInterrupt:
        out.write("\nending both servers\n")
        return 0
    finally:
        _stop(servers, out)
    return 1


def free_ports(first: int, count: int, out: TextIO) -> list[int]:
    """The next `count` ports from `first` on that nobody listens on; says so where it had to pass one over."""
    found: list[int] = []
    for port in range(first, min(first + PORTS_TRIED, 65536)):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
        else:
            out.write(f"port {port} is in use, so the next one is tried\n")
    if len(found) < count:
        raise ConfigError(f"no {count} free ports from {first} on: name another first one with --port")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True


def _start(alias: str, path: Path, port: int, peers: Sequence[int]) -> Server:
    command = [sys.executable, "-m", "lsm_cli.server", "--model", str(path), "--alias", alias, "--host", HOST, "--port", str(port)]
    command += ["--sleep-evict-kv", "--metrics", "--page-peers", ",".join(f"http://{HOST}:{other}" for other in peers)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # the terminal's ctrl-C reaches us alone, so each server hears one signal, from us
        preexec_fn=_end_with_parent,
    )
    return Server(alias, port, process)


def _end_with_parent() -> None:
    """The kernel ends a server whose supervisor was killed; there is no thread here that could make this unsafe."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _relay(servers: Sequence[Server], out: TextIO) -> None:
    """Pass the output on, line by line, and say once when all answer.  Returns when a server has ended."""
    with selectors.DefaultSelector() as selector:
        for server in servers:
            assert server.process.stdout is not None
            os.set_blocking(server.process.stdout.fileno(), False)
            selector.register(server.process.stdout, selectors.EVENT_READ, server)
        told, ask_at_s = False, time.monotonic() + ASK_EVERY_S
        while all(server.is_open for server in servers):
            for key, _ in selector.select(None if told else ASK_EVERY_S):
                _pass_on(key.data, out)
            if not told and time.monotonic() >= ask_at_s:
                told = _all_answer(servers)
                ask_at_s = time.monotonic() + ASK_EVERY_S
                if told:
                    out.write(f"\nBoth models are up. Open {servers[0].url}/ and send each a prompt; ctrl-C ends everything.\n\n")
                    out.flush()


def _pass_on(server: Server, out: TextIO) -> None:
    assert server.process.stdout is not None
    content = server.process.stdout.read()
    server.is_open = content != b""
    *lines, server.rest = (server.rest + (content or b"")).split(b"\n")
    for line in lines:
        out.write(f"[{server.alias}] {line.decode(errors='replace')}\n")
    out.flush()


def _all_answer(servers: Sequence[Server]) -> bool:
    for server in servers:
        server.answers = server.answers or _is_healthy(server.url)
    return all(server.answers for server in servers)


def _is_healthy(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=1.0):
            return True
    except OSError:
        return False


def _stop(servers: Sequence[Server], out: TextIO) -> None:
    """One SIGTERM each, then patience, then SIGKILL.  What a server says while it ends is read, or it could not end."""
    for server in servers:
        server.process.terminate()
    for server in servers:
        try:
            content, _ = server.process.communicate(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.process.kill()
            content, _ = server.process.communicate()
            out.write(f"[{server.alias}] did not end within {STOP_WITHIN_S:.0f} s and was killed\n")
        for line in (server.rest + (content or b"")).decode(errors="replace").splitlines():
            out.write(f"[{server.alias}] {line}\n")
    for server in servers:
        out.write(f"{server.alias} ended with status {server.process.returncode}\n")
    out.flush()
