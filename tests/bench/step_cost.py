"""What a step costs beside the model: `python -m tests.bench.step_cost`.  Microseconds a step, and a token, from 1 to 64 slots.

The scheduler works as ever, over a decoder that decodes nothing: what is left is batches, text, stop words and outputs.  Best of some runs,
since other work on the machine only adds.  Nothing here is a test: a busy machine would fail it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Sequence

import numpy as np

from lsm.engine.batch import Batch
from lsm.engine.limits import Limits
from lsm.engine.outputs import Job
from lsm.engine.ports import Sampler
from lsm.engine.scheduler import Scheduler
from lsm.runtime.executor import Executor
from lsm.values import Options, Sampling, TokenProbs

SLOTS = (1, 2, 4, 8, 16, 32, 64)
STEPS, RUNS = 300, 7
STOP = ("\n\nUser:", "</s>")  # as chats have them


class NoDecoder:
    """Everything works at once, and every token is the same."""

    def decode(
        self, batch: Batch, start: int, stop: int, rows: Sequence[int], samplers: Sequence[Sampler]
    ) -> tuple[int, Sequence[int]]:
        return 0, [5] * len(rows)

    def seq_rm(self, slot: int, start: int, stop: int) -> bool:
        return True

    def seq_pos_min(self, slot: int) -> int:
        return 0

    def set_adapters(self, scales: Sequence[float]) -> None: ...


class NoSampler:
    seed = 0
    failure = ""

    def accept_prompt(self, tokens: Sequence[int]) -> None: ...

    def shows(self, token: int) -> bool:
        return False

    def probs(self, token: int, special: bool) -> tuple[TokenProbs, ...]:
        return ()

    def close(self) -> None: ...


class OneWord:
    n_tokens = 10

    def is_eog(self, token: int) -> bool:
        return False

    def piece(self, token: int, special: bool) -> bytes:
        return b" word"


def generating(n_slots: int, stop: tuple[str, ...]) -> Scheduler:
    """Every slot in the middle of an answer."""
    limits = Limits(n_slots=n_slots, n_ctx_slot=STEPS * (RUNS + 1) + 100, n_batch=512, n_swa=0, shares_cells=True)

    def new_sampler(options: Sampling) -> tuple[NoSampler, int]:
        return NoSampler(), 0

    scheduler = Scheduler(limits, NoDecoder(), OneWord(), new_sampler, Executor)  # type: ignore[arg-type]
    for i in range(n_slots):
        scheduler.submit(Job(str(i), np.array([1, 2, 3], np.int32), Options(stop=stop)))
    scheduler.step()
    return scheduler


def run(scheduler: Scheduler) -> None:
    for _ in range(STEPS):
        scheduler.step()
        scheduler.outputs()


def best_us(n_slots: int, stop: tuple[str, ...]) -> float:
    """Microseconds a step."""
    scheduler, times = generating(n_slots, stop), []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(scheduler)
        times.append(time.perf_counter() - start)
    scheduler.close()
    return min(times) / STEPS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", type=int, metavar="SLOTS", help="where the time goes with so many slots")
    slots = parser.parse_args().profile
    if slots:
        with cProfile.Profile() as profile:
            run(generating(slots, STOP))
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)
        return
    print("slots   us a step   us a token   with stop words")
    for n_slots in SLOTS:
        plain, stopping = best_us(n_slots, ()), best_us(n_slots, STOP)
        print(f"{n_slots:5} {plain:11.1f} {plain / n_slots:12.2f} {stopping / n_slots:17.2f}")


if __name__ == "__main__":
    main()
