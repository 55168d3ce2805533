"""Two servers with the same model and the same flags: ours, and the llama-server that LSM_PEER_LLAMA_SERVER names."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.servers import Server

PEER = "LSM_PEER_LLAMA_SERVER"
# One slot and one thread; without flash attention, whose rounding depends on the shape of a batch.
SAME = ("--ctx-size", "2048", "--parallel", "1", "--batch-size", "512", "--threads", "1", "--flash-attn", "off", "--no-warmup")
START_S = 120.0


class Peer:
    """The other server, for `post` and nothing else."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=START_S)

    def post(self, path: str, body: Any) -> httpx.Response:
        return self._client.post(path, json=body)

    def is_ready(self) -> bool:
        try:
            return self._client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._client.close()


@contextmanager
def both(model: Path, arena: Path, *flags: str) -> Iterator[tuple[Server, Peer]]:
    """(ours, theirs), serving the same file with `flags` besides those that make them comparable."""
    with Server(arena, model, "same", *SAME, *flags) as ours, theirs(model, arena.with_suffix(".log"), *SAME, *flags) as peer:
        yield ours, peer


@contextmanager
def theirs(model: Path, log: Path, *flags: str) -> Iterator[Peer]:
    port = _free_port()
    command = [os.environ[PEER], "-m", str(model), "--port", str(port), "--no-webui", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    peer = Peer(f"http://127.0.0.1:{port}")
    try:
        end_s = time.monotonic() + START_S
        while not peer.is_ready():
            assert process.poll() is None and time.monotonic() < end_s, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)
        yield peer
    finally:
        peer.close()
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
