"""Whole runs of several servers from one seed each, in one thread, on virtual time: real tables, owners and lines; faults; then progress.

python -m specs.simulate --seeds 10000            many seeds; stops at the first that fails, and says how to see it again
python -m specs.simulate --seed 7 --trace FILE    one of them, edge by edge, as NDJSON
python -m specs.simulate --seeds 60 --plant WORDS with a planted mistake whose name has these words; also with --seed
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from lsm.runtime.executor import Fired
from lsm.runtime.trace import line_of
from lsm.verify.record import Record
from specs.simulation.planted import PLANTED, Planted
from specs.simulation.run import Outcome, examine, simulate

WORKERS = 2


def write_trace(outcome: Outcome, path: Path) -> None:
    """In the form of `LSM_TRACE`; `pid` counts the lives of servers, `t_ns` is simulated."""
    path.write_bytes(b"".join(map(_line, outcome.edges)))


def _line(edge: Record) -> bytes:
    fired = Fired(edge.machine, edge.subject, edge.source, edge.event, edge.facts, edge.target, edge.effects, edge.t_ns)
    return line_of(fired, edge.pid, edge.run)


def in_words(outcome: Outcome, edges: int = 15) -> str:
    """How a run ended: its last edges, and what was wrong."""
    last = [
        f"{edge.t_ns / 1e9:9.3f} s  pid {edge.pid} {edge.subject}  {edge.machine}: {edge.source} -- {edge.event} -> {edge.target}"
        for edge in outcome.edges[-edges:]
    ]
    return "\n".join([*last, f"seed {outcome.seed}: {outcome.problem or 'everything held'}"])


def chosen(words: str) -> Planted | None:
    """Raises SystemExit if no planted mistake has the words in its name."""
    if not words:
        return None
    for planted in PLANTED:
        if words in planted.name:
            return planted
    raise SystemExit(f"no planted mistake has {words!r} in its name; there are:\n  " + "\n  ".join(planted.name for planted in PLANTED))


def run(seed: int, planted: Planted | None = None) -> Outcome:
    """With a mistake, its edges are not held against the tables, which it may have changed."""
    if planted is None:
        return examine(seed)
    with planted.plant():
        return simulate(seed)


def first_caught(planted: Planted) -> Outcome | None:
    """The first run that shows the mistake, within the seeds that it has."""
    outcomes = (run(seed, planted) for seed in range(planted.first, planted.first + planted.seeds))
    return next((outcome for outcome in outcomes if outcome.problem), None)


def one(seed: int, plant: str, trace: Path | None) -> int:
    outcome = run(seed, chosen(plant))
    if trace is not None:
        write_trace(outcome, trace)
    print(in_words(outcome))
    print(f"{len(outcome.edges)} edges, {outcome.handoffs} handoffs in {outcome.simulated_s:.0f} simulated seconds")
    print(f"requests: {outcome.ends}; faults: {outcome.faults}")
    return 1 if outcome.problem else 0


def many(first: int, count: int, plant: str) -> int:
    total: Counter[str] = Counter()
    start = time.perf_counter()
    again = f" --plant {plant!r}" if plant else ""
    # Runs make much garbage without cycles: looking for these less often is a tenth of the time.
    with ProcessPoolExecutor(WORKERS, get_context("spawn"), initializer=gc.set_threshold, initargs=(100_000,)) as pool:
        for done, outcome in enumerate(pool.map(partial(_without_edges, plant), range(first, first + count), chunksize=5), start=1):
            total.update(handoffs=outcome.handoffs, simulated_s=round(outcome.simulated_s), **outcome.faults)
            if outcome.problem:
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"seed {outcome.seed} FAILS: {outcome.problem}")
                print(f"again: python -m specs.simulate --seed {outcome.seed}{again} --trace FILE")
                return 1
            if done % 100 == 0:
                print(f"{done} seeds hold", flush=True)
    took_s = time.perf_counter() - start
    rate = 60 * total["handoffs"] / took_s
    print(f"{count} seeds hold in {took_s:.0f} s: {total['handoffs']} handoffs, {rate:.0f} a minute; {dict(total)}")
    return 0


def _without_edges(plant: str, seed: int) -> Outcome:
    """They need not travel between processes: the seed gives them again."""
    return replace(run(seed, chosen(plant)), edges=[])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m specs.simulate", description="Simulate whole runs of several servers.")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--seed", type=int, help="one run")
    how.add_argument("--seeds", type=int, help="so many runs, on two processes")
    parser.add_argument("--first", type=int, default=0, help="the first of --seeds")
    parser.add_argument("--trace", type=Path, help="with --seed: write its edges there")
    parser.add_argument("--plant", default="", metavar="WORDS", help="plant a mistake whose name has these words")
    options = parser.parse_args(arguments)
    if options.seed is None:
        if options.trace is not None:
            parser.error("--trace needs --seed")
        return many(options.first, options.seeds, options.plant)
    return one(options.seed, options.plant, options.trace)


if __name__ == "__main__":
    sys.exit(main())
