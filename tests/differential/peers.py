"""Two servers with the same model and the same flags: ours, and the llama-server that LSM_PEER_LLAMA_SERVER names."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
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

    def close(self) -> None:
        self._client.close()


@contextmanager
def both(model: Path, arena: Path, *flags: str, their_flags: Sequence[str] | None = None) -> Iterator[tuple[Server, Peer]]:
    """(ours, theirs), serving the same file with `flags` besides those that make them comparable.  `their_flags`: instead of these."""
    with Server(arena, model, "same", *SAME, *flags) as ours, theirs(model, *SAME, *(their_flags or flags)) as peer:
        yield ours, peer


@contextmanager
def theirs(model: Path, *flags: str) -> Iterator[Peer]:
    """A llama-server that has loaded `model`; ended at the end."""
    url = f"http://127.0.0.1:{_free_port()}"
    command = [os.environ[PEER], "-m", str(model), "--port", url.rpartition(":")[2], "--no-webui", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if "model loaded" in line:
            break
    reader = threading.Thread(target=process.stdout.read, daemon=True)  # a full pipe would stop it
    reader.start()
    peer = Peer(url)
    try:
        assert process.poll() is None, "".join(lines)
        yield peer
    finally:
        peer.close()
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
