"""Release and restore on a GPU, beside a plain copy of pinned memory in the same run.

`python -m tests.bench.gpu classes --model 4b --kind f16`: bytes and time for each class of memory and each kind of shadow.
`python -m tests.bench.gpu handoff --model 4b --kind f16 -n 60`: two servers take turns; LSM_PEER_LLAMA_SERVER names a llama-server of the
same build that does the same as router with one model, and by idle sleep.

Models are random and written on the spot (`tests.bench.random_model`).  `--model tiny` runs anywhere, and shows that the script does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import numpy as np

from lsm.native.context import Context
from lsm.native.memory import SHADOWS, set_shadow
from lsm.native.model import Model
from tests.bench import handoff
from tests.bench.plain_copy import copy_seconds, runtime, used_bytes
from tests.bench.random_model import SHAPES, write
from tests.e2e.servers import Server

CLASSES = ("weights", "kv", "compute")
MiB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("classes", "handoff"))
    parser.add_argument("--model", choices=tuple(SHAPES), default="4b")
    parser.add_argument("--kind", choices=("f16", "q8_0"), default="f16")
    parser.add_argument("--shadow", choices=tuple(SHADOWS), action="append", help="repeatable (default: each)")
    parser.add_argument("--tokens", type=int, default=8000, help="length of the conversation (default: 8000)")
    parser.add_argument("--ctx", type=int, default=32768, help="positions in the KV cache (default: 32768)")
    parser.add_argument("-n", type=int, default=60, help="cycles, or alternations (default: 60)")
    parser.add_argument("--flash-attn", default="auto", choices=("auto", "on", "off"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{options.model}-{options.kind}.gguf"
        write(path, SHAPES[options.model], options.kind)
        print(f"{path.name}: {path.stat().st_size / MiB:.0f} MiB, conversation of {options.tokens} tokens, room for {options.ctx}")
        (classes if options.what == "classes" else handoffs)(path, options)


# ---- one process: each class and each kind of shadow


def classes(path: Path, options: argparse.Namespace) -> None:
    with Model.load(path, 1) as warm:  # the page cache is warm, and the driver awake, before anything is measured
        del warm
    bare = used_bytes()
    print(f"device memory with nothing but the driver's context: {bare / MiB:.0f} MiB")
    for shadow in options.shadow or SHADOWS:
        set_shadow(shadow, 1 << 60)
        start = time.perf_counter()
        with Model.load(path, 1) as model:
            print(f"\nshadow {shadow}: loaded in {time.perf_counter() - start:.1f} s")
            one_shadow(model, options, bare)


def one_shadow(model: Model, options: argparse.Namespace, bare: int) -> None:
    context = Context(
        model, 1, n_ctx=options.ctx, n_seq_max=1, kv_unified=True, threads=1, threads_batch=1, n_batch=512, flash_attn=options.flash_attn
    )
    model.memory.prepare("kv")
    model.memory.wait_for_room("kv")
    tokens = np.random.default_rng(2).integers(300, model.vocab.n_tokens, options.tokens).astype(np.int32)
    for at in range(0, len(tokens), 512):
        decode(context, tokens[at : at + 512], at)
    expected = repeat_last(context, tokens)
    steady = statistics.median(seconds_of(lambda: repeat_last(context, tokens)) for _ in range(5))
    before = used_bytes()
    sizes = {name: model.memory.bytes(name) for name in CLASSES}
    live = kv_bytes(model, options.tokens, options.ctx)
    print("  class     on device     copied    release    restore  plain copy there and back  restore / plain")
    for name in CLASSES:
        report_class(model, context, name, sizes[name].device, {"weights": sizes[name].device, "kv": live}.get(name, 0), options.n)
    released = seconds_of(lambda: leave(model, context))
    cold = used_bytes()
    restored = seconds_of(lambda: model.memory.restore(*CLASSES))
    first = seconds_of(lambda: repeat_last(context, tokens))
    same = repeat_last(context, tokens).tobytes() == expected.tobytes()
    print(f"  all: release {ms(released)}, restore {ms(restored)}, then first token {ms(first)}, steady {ms(steady)}")
    print(f"  device memory: loaded {before / MiB:.0f}, cold {cold / MiB:.0f}, above the bare context {(cold - bare) / MiB:.0f} MiB")
    print(f"  copies: {places(model)}; logits {'are the same bits' if same else 'DIFFER'}")


def report_class(model: Model, context: Context, name: str, size: int, copied: int, n: int) -> None:
    release, restore = [], []
    for _ in range(min(n, 10)):
        context.synchronize()
        release.append(seconds_of(lambda: model.memory.release(name)))
        restore.append(seconds_of(lambda: model.memory.restore(name)))
    there, back = copy_seconds(copied) if copied else (0.0, 0.0)
    ratio = f"{statistics.median(restore) / there:15.3f}" if copied else ""
    times = f"{ms(statistics.median(release))} {ms(statistics.median(restore))}  {ms(there)} {ms(back)}"
    print(f"  {name:<8} {size / MiB:8.1f} MiB {copied / MiB:8.1f} MiB {times} {ratio}")
    print(f"  {'':<8} first {ms(release[0])} and {ms(restore[0])}, slowest {ms(max(release))} and {ms(max(restore))}")


def leave(model: Model, context: Context) -> None:
    context.synchronize()
    model.memory.release(*CLASSES)


def decode(context: Context, tokens: np.ndarray, position: int) -> np.ndarray:
    """Logits of the last of these tokens, (n_vocab,) float32."""
    n = len(tokens)
    outputs = np.zeros(n, np.int8)
    outputs[-1] = 1
    positions = np.arange(position, position + n, dtype=np.int32)
    step = context.step(tokens, positions, np.zeros(n, np.int32), outputs, np.array([n - 1], np.int32), logits=True)
    assert step.code == 0 and step.logits is not None
    return step.logits[0].copy()


def repeat_last(context: Context, tokens: np.ndarray) -> np.ndarray:
    context.seq_rm(0, len(tokens) - 1, -1)
    return decode(context, tokens[-1:], len(tokens) - 1)


def kv_bytes(model: Model, n_tokens: int, n_ctx: int) -> int:
    return model.memory.bytes("kv").device * n_tokens // n_ctx


def places(model: Model) -> str:
    sizes = [model.memory.bytes(name) for name in CLASSES]
    totals = {place: sum(getattr(size, place) for size in sizes) for place in ("file", "registered", "pinned", "host")}
    return ", ".join(f"{place} {total / MiB:.0f} MiB" for place, total in totals.items())


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:7.1f} ms"


def seconds_of(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


# ---- two servers, and llama-server beside them


def handoffs(path: Path, options: argparse.Namespace) -> None:
    other = path.with_name(f"other-{path.name}")
    os.link(path, other)
    paths = [path, other]
    tokens = np.random.default_rng(2).integers(300, SHAPES[options.model].n_vocab, options.tokens).tolist()
    shadow = (options.shadow or ["file"])[0]
    flags = ("--ctx-size", str(options.ctx), "--parallel", "1", "--sleep-evict-kv", "--min-hold-ms", "0", "--shadow", shadow)
    floor = plain_seconds(path, options)
    with our_servers(paths, flags, tokens) as asks:
        ours = handoff.measure("lsm", asks, options.n, lambda which: floor)
    if not (peer := os.environ.get("LSM_PEER_LLAMA_SERVER")):
        return
    with router(Path(peer), paths, options.ctx, tokens) as asks:
        theirs = handoff.measure("llama-server, router with one model", asks, min(options.n, 12), lambda which: floor)
    print(f"first token, llama-server's router / lsm: {theirs / ours:.1f}")
    theirs = idle_sleep(Path(peer), path, options.ctx, tokens)
    print(f"first token, llama-server's idle sleep / lsm: {theirs / ours:.1f}")


def plain_seconds(path: Path, options: argparse.Namespace) -> float:
    """Weights and live KV in, live KV out: what a handoff copies."""
    shape = SHAPES[options.model]
    live = options.tokens * shape.n_layer * 2 * 2 * shape.n_embd // shape.n_head * shape.n_head_kv
    weights_in = copy_seconds(path.stat().st_size)[0]
    there, back = copy_seconds(live)
    return weights_in + there + back


def _ask(client: httpx.Client, model: str, tokens: list[int]) -> handoff.Ask:
    body = {"model": model, "prompt": tokens, "n_predict": 1, "temperature": 0, "cache_prompt": True}

    def ask() -> int:
        response = client.post("/completion", json=body)
        assert response.status_code == 200, response.text
        return int(response.json()["timings"]["prompt_n"])

    return ask


@contextmanager
def our_servers(paths: list[Path], flags: tuple[str, ...], tokens: list[int]) -> Iterator[list[handoff.Ask]]:
    with ExitStack() as stack:
        arena = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "arena"
        servers = [stack.enter_context(Server(arena, path, path.stem, *flags)) for path in paths]
        yield [_ask(server.client, server.alias, tokens) for server in servers]
        if runtime() is not None:
            print(f"  device memory with both servers: {used_bytes() / MiB:.0f} MiB")


@contextmanager
def router(program: Path, paths: list[Path], n_ctx: int, tokens: list[int]) -> Iterator[list[handoff.Ask]]:
    """One model loaded at a time."""
    with handoff.peer(program, ["--models-dir", paths[0].parent, "--models-max", 1, "-c", n_ctx, "-np", 1]) as (client, _):
        yield [_ask(client, path.stem, tokens) for path in paths]


def idle_sleep(program: Path, path: Path, n_ctx: int, tokens: list[int], n: int = 4) -> float:
    """One server that gives its memory back after a second without work: median seconds of a request that wakes it."""
    with handoff.peer(program, ["-m", path, "-c", n_ctx, "-np", 1, "--sleep-idle-seconds", 1]) as (client, process):
        ask = _ask(client, path.stem, tokens)
        ask()
        seconds = []
        for _ in range(n):
            handoff.wait_until(process, lambda: client.get("/props").json().get("is_sleeping") is True)
            asleep = used_bytes()
            seconds.append(seconds_of(ask))
    print(f"llama-server, idle sleep: median {ms(statistics.median(seconds))} of {n}; device memory when asleep {asleep / MiB:.0f} MiB")
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
