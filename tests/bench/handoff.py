"""How long it takes until the other model answers: `python -m tests.bench.handoff -n 60`.

Two servers, SmolLM2 and Gemma 3, one arena, alternating requests for one token of a conversation that is already in the cache.
A handoff is the time of such a request while the other model has the device, less the median time of the same request to a model that
is awake; it holds the release of the one, the token, and the restore of the other.  Beside it, in the same run: reading the same bytes
from the same file into fresh memory, once for each handoff, which no restore from the file can beat.

LSM_PEER_LLAMA_SERVER=PATH: the same conversations against that llama-server as router with --models-max 1.
"""

from __future__ import annotations

import argparse
import mmap
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import REAL_MODELS, models_dir
from tests.e2e.servers import Server

STORY = " ".join(f"Fact {n}: the tower number {n} is {n * 7 % 50} metres high." for n in range(40))
CHUNK_BYTES = 16 << 20

Ask = Callable[[], int]  # one request; returns the prompt tokens that were processed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=60, help="alternations (default: 60)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each server (default: 1)")
    parser.add_argument("--sleep-evict-kv", action="store_true", help="the KV cache leaves too")
    options = parser.parse_args()
    paths = [models_dir() / file for file in REAL_MODELS.values()]

    def reading(which: int) -> float:
        return copy_seconds(paths[which])

    flags = ["--threads", str(options.threads), *(["--sleep-evict-kv"] if options.sleep_evict_kv else [])]
    with our_servers(paths, flags) as asks:
        ours = measure("lsm", asks, options.n, reading)
    peer = os.environ.get("LSM_PEER_LLAMA_SERVER")
    if not peer:
        print("set LSM_PEER_LLAMA_SERVER to a llama-server of the same build to see its router beside this")
        return
    with router(Path(peer), paths, options.threads) as asks:
        theirs = measure("llama-server router", asks, options.n, reading)
    print(f"switch to first token, llama-server's router / lsm: {theirs / ours:.1f}")


def measure(name: str, asks: list[Ask], n: int, plain_copy: Callable[[int], float]) -> float:
    """Print what was seen; return the median time of a request to the model that is not on the device, in seconds.

    plain_copy(i): seconds of copying the bytes that model i needs, by the simplest means.
    """
    for ask in asks:
        ask()
    warm = [statistics.median(_repeat(ask, 5)) for ask in asks]  # each is awake after its first
    switched: list[float] = []
    over_warm: list[float] = []
    copies: list[float] = []
    processed, stranded = 0, 0
    for turn in range(n):
        which = turn % 2
        try:
            seconds, tokens = _timed(asks[which])
        except (httpx.HTTPError, AssertionError) as error:
            stranded += 1
            print(f"turn {turn}: {error}")
            continue
        switched.append(seconds)
        over_warm.append(seconds - warm[which])
        processed += tokens
        copies.append(plain_copy(which))
    print(f"{name}: {n} alternations, {stranded} stranded, {processed / max(1, len(switched)):.1f} prompt tokens processed in each")
    print(f"  request after a switch   {_spread(switched)}")
    print(f"  the same when awake      median {1e3 * statistics.mean(warm):.0f} ms")
    print(f"  handoff                  {_spread(over_warm)}")
    print(f"  copying the same bytes   {_spread(copies)}")
    print(f"  handoff / copying        {statistics.median(over_warm) / statistics.median(copies):.2f}")
    return statistics.median(switched)


def copy_seconds(path: Path) -> float:
    """Read a whole file into memory that was never touched before."""
    start = time.perf_counter()
    size = path.stat().st_size
    with mmap.mmap(-1, size) as memory, path.open("rb", buffering=0) as file:
        view = memoryview(memory)
        for at in range(0, size, CHUNK_BYTES):
            file.readinto(view[at : at + CHUNK_BYTES])
        view.release()
    return time.perf_counter() - start


def _timed(ask: Ask) -> tuple[float, int]:
    start = time.perf_counter()
    tokens = ask()
    return time.perf_counter() - start, tokens


def _repeat(ask: Ask, n: int) -> list[float]:
    return [_timed(ask)[0] for _ in range(n)]


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"median {1e3 * statistics.median(ordered):.0f} ms, p95 {1e3 * ordered[int(0.95 * (len(ordered) - 1))]:.0f} ms"


def _ask(client: httpx.Client, model: str) -> Ask:
    body: dict[str, Any] = {"model": model, "prompt": STORY, "max_tokens": 1, "temperature": 0}

    def ask() -> int:
        response = client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        return int(response.json()["timings"]["prompt_n"])

    return ask


@contextmanager
def our_servers(paths: list[Path], flags: list[str]) -> Iterator[list[Ask]]:
    with ExitStack() as stack:
        arena = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "arena"
        servers = [stack.enter_context(Server(arena, path, name, *flags)) for name, path in zip(REAL_MODELS, paths, strict=True)]
        yield [_ask(server.client, server.alias) for server in servers]


@contextmanager
def router(program: Path, paths: list[Path], threads: int) -> Iterator[list[Ask]]:
    """llama-server's own way to share a device: one model loaded at a time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for path in paths:
            (folder / path.name).symlink_to(path.resolve())
        client, _ = stack.enter_context(peer(program, ["--models-dir", folder, "--models-max", 1, "-c", 4096, "-np", 1, "-t", threads]))
        yield [_ask(client, path.stem) for path in paths]


@contextmanager
def peer(program: Path, arguments: list[object]) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """A llama-server that answers, and its process."""
    with ExitStack() as stack:
        port = _free_port()
        command = [program, *arguments, "--port", port, "--no-ui"]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300))
        wait_until(process, lambda: client.get("/health").status_code == 200)
        yield client, process


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """Until the peer says so; ends the program if the peer ends."""
    while process.poll() is None:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    raise SystemExit(f"the peer ended with {process.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
