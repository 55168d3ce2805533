"""Speed beside llama-server: `LSM_PEER_LLAMA_SERVER=PATH python -m tests.bench.throughput` (`make peer` builds it).

Both servers run with the same flags and take turns within each round, so that what else the machine does meets both; each line is the
median of the rounds, and of their ratios.  CPU: user and system time of the server for each token;
what llama_decode takes of it is told by a loop in this process with the same batches.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil

from lsm.native.context import Context
from lsm.native.model import Model
from tests.bench import handoff
from tests.bench.random_model import SHAPES, write
from tests.bench.streams import stream
from tests.conftest import REAL_MODELS, models_dir
from tests.e2e.servers import Server

SLOTS, ROOM = 16, 8192
SAME = (
    "--parallel", str(SLOTS), "--kv-unified", "--ctx-size", str(ROOM), "--batch-size", "512", "--ubatch-size", "512", "--flash-attn", "on",
    "--cache-ram", "0",
)  # fmt: skip
PROMPT = 16  # tokens, where the answer counts

T = TypeVar("T")


@dataclass(frozen=True)
class Side:
    """One of the two servers."""

    url: str
    process: psutil.Process

    def ask(self, n_streams: int, n_prompt: int, n_predict: int) -> tuple[float, float, float]:
        """(seconds until all have their first token, seconds from then to the end, CPU seconds)."""
        before_s = self._cpu_s()
        bodies = [
            {"prompt": prompt(n_prompt, seed), "n_predict": n_predict, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
            for seed in range(n_streams)
        ]
        streams = stream(self.url, bodies)
        assert all(each.last_event()["tokens_predicted"] == n_predict for each in streams)
        first_s = max(each.first_s for each in streams)
        return first_s, max(each.last_s for each in streams) - first_s, self._cpu_s() - before_s

    def _cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help=f"one of {', '.join((*REAL_MODELS, *SHAPES))}, or a file (default: smollm2)")
    parser.add_argument("--threads", type=int, default=1, help="of each server (default: 1)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer (default: 64)")
    parser.add_argument("--prompts", type=int, nargs="*", default=[512, 4096], help="lengths of prompts (default: 512 4096)")
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 4, 16], help="answers at the same time (default: 1 4 16)")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = find_model(options.model, folder)
        sides = stack.enter_context(both(model, folder, options.threads))
        decode = stack.enter_context(bare_decoder(model, options.threads))
        print(f"{model.name}, {options.threads} threads, {options.rounds} rounds")
        print(f"{'':<34} {'lsm':>9} {'llama-server':>13} {'ratio':>7}  quartiles")
        for n in options.streams:
            decoding(sides, decode, n, options.tokens, options.rounds)
        report("time to first token, ms", *rounds(sides, lambda side: 1e3 * side.ask(1, PROMPT, 1)[0], options.rounds))
        for n in options.prompts:
            report(f"prompt of {n}, tokens/s", *rounds(sides, partial(prompt_tokens_s, n), options.rounds))


def decoding(sides: tuple[Side, Side], decode: Callable[[int, int], float], n_streams: int, n_predict: int, n_rounds: int) -> None:
    """Tokens a second of all streams together, and CPU time beyond llama_decode."""
    n_tokens = n_streams * (n_predict - 1)
    bare: list[float] = []

    def one(side: Side) -> tuple[float, float]:
        _, seconds, cpu_s = side.ask(n_streams, PROMPT, n_predict)
        return n_tokens / seconds, 1e6 * cpu_s / n_tokens

    pairs = []
    for turn in range(n_rounds):
        pairs.append(in_turn(sides, one, turn))
        bare.append(1e6 * decode(n_streams, n_predict) / n_tokens)
    report(f"{n_streams} streams, tokens/s", [a[0] for a, _ in pairs], [b[0] for _, b in pairs])
    ours, theirs = [a[1] for a, _ in pairs], [b[1] for _, b in pairs]
    report(f"{n_streams} streams, CPU us a token", ours, theirs)
    beyond = (statistics.median(us - least for us, least in zip(side, bare, strict=True)) for side in (ours, theirs))
    print("{:<34} {:9.1f} {:13.1f}".format(f"  beyond llama_decode's {statistics.median(bare):.0f}", *beyond), flush=True)


def prompt_tokens_s(n: int, side: Side) -> float:
    return n / side.ask(1, n, 1)[0]


def rounds(sides: tuple[Side, Side], one: Callable[[Side], float], n: int) -> tuple[list[float], list[float]]:
    pairs = [in_turn(sides, one, turn) for turn in range(n)]
    return [ours for ours, _ in pairs], [theirs for _, theirs in pairs]


def in_turn(sides: tuple[Side, Side], one: Callable[[Side], T], turn: int) -> tuple[T, T]:
    """Who is first changes from round to round."""
    if turn % 2:
        theirs = one(sides[1])
        return one(sides[0]), theirs
    return one(sides[0]), one(sides[1])


def report(what: str, ours: list[float], theirs: list[float]) -> None:
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    medians = f"{statistics.median(ours):9.1f} {statistics.median(theirs):13.1f} {statistics.median(ratios):7.2f}"
    print(f"{what:<34} {medians}  {low:.2f} to {high:.2f}", flush=True)


def prompt(n: int, seed: int) -> list[int]:
    """Tokens that both servers take as they are; another seed shares no beginning."""
    return [int(token) for token in np.random.default_rng(seed).integers(300, 500, n)]


def find_model(name: str, folder: Path) -> Path:
    if name in REAL_MODELS:
        return models_dir() / REAL_MODELS[name]
    if name in SHAPES:
        write(folder / f"{name}.gguf", SHAPES[name], "q8_0")
        return folder / f"{name}.gguf"
    return Path(name)


@contextmanager
def both(model: Path, folder: Path, threads: int) -> Iterator[tuple[Side, Side]]:
    """(ours, theirs), warm."""
    flags = (*SAME, "--threads", str(threads))
    program = Path(os.environ["LSM_PEER_LLAMA_SERVER"])
    with Server(folder / "arena", model, "same", *flags) as server, handoff.peer(program, ["-m", model, *flags]) as (client, process):
        sides = Side(server.url, psutil.Process(server.pid)), Side(str(client.base_url), psutil.Process(process.pid))
        for side in sides:
            side.ask(SLOTS, PROMPT, 2)
        yield sides


@contextmanager
def bare_decoder(model_path: Path, threads: int) -> Iterator[Callable[[int, int], float]]:
    """decode(n_streams, n_predict): CPU seconds of llama_decode for the prompts and answers of so many streams."""
    with (
        Model.load(model_path, 1) as model,
        Context(
            model, 1, n_ctx=ROOM, n_seq_max=SLOTS, kv_unified=True, n_batch=512, threads=threads, threads_batch=threads, flash_attn="on"
        ) as context,
    ):

        def decode(n_streams: int, n_predict: int) -> float:
            context.memory_clear(data=False)
            prompts = np.array([prompt(PROMPT, seed) for seed in range(n_streams)], np.int32).reshape(-1)
            places = np.tile(np.arange(PROMPT, dtype=np.int32), n_streams)
            slots = np.repeat(np.arange(n_streams, dtype=np.int32), PROMPT)
            before_s = cpu_s()
            step(context, prompts, places, slots)
            slots, tokens = np.arange(n_streams, dtype=np.int32), np.full(n_streams, 300, np.int32)
            for position in range(PROMPT, PROMPT + n_predict - 1):
                step(context, tokens, np.full(n_streams, position, np.int32), slots)
            return cpu_s() - before_s

        yield decode


def step(context: Context, tokens: np.ndarray, positions: np.ndarray, slots: np.ndarray) -> None:
    outputs = np.zeros(len(tokens), np.int8)
    outputs[len(tokens) // (slots[-1] + 1) - 1 :: len(tokens) // (slots[-1] + 1)] = 1
    assert context.step(tokens, positions, slots, outputs, np.zeros(0, np.int32)).code == 0
    context.synchronize()


def cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
