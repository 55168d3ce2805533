"""Whole runs of several servers from one seed each, in one thread, on virtual time: real tables, owners and lines; faults; then progress.

python -m specs.simulate --seeds 10000            many seeds; stops at the first that fails, and says how to see it again
python -m specs.simulate --seed 7 --trace FILE    one of them, edge by edge, as NDJSON
python -m specs.simulate --seed 7 --plant WORDS   with a planted mistake whose name has these words
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
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


def first_caught(planted: Planted) -> Outcome | None:
    """The first run that shows the mistake, within the seeds that it has."""
    with planted.plant():
        for seed in range(planted.seeds):
            if (outcome := simulate(seed)).problem:
                return outcome
    return None


def one(seed: int, plant: str, trace: Path | None) -> int:
    chosen = [planted for planted in PLANTED if plant in planted.name] if plant else []
    if plant and not chosen:
        raise SystemExit(f"no planted mistake has {plant!r} in its name; there are:\n  " + "\n  ".join(p.name for p in PLANTED))
    if chosen:  # the trace would be held against the tables as they should be
        with chosen[0].plant():
            outcome = simulate(seed)
    else:
        outcome = examine(seed)
    if trace is not None:
        write_trace(outcome, trace)
    print(in_words(outcome))
    print(f"{len(outcome.edges)} edges, {outcome.handoffs} handoffs in {outcome.simulated_s:.0f} simulated seconds; "
          f"requests: {outcome.ends}; faults: {outcome.faults}")  # fmt: skip
    return 1 if outcome.problem else 0


def many(first: int, count: int) -> int:
    total: Counter[str] = Counter()
    start = time.perf_counter()
    with ProcessPoolExecutor(max_workers=WORKERS, initializer=logging.disable) as pool:
        for done, outcome in enumerate(_quiet_runs(pool, first, count), start=1):
            total.update(handoffs=outcome.handoffs, seconds=round(outcome.simulated_s), **outcome.faults)
            if outcome.problem:
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"seed {outcome.seed} FAILS: {outcome.problem}\nagain: python -m specs.simulate --seed {outcome.seed} --trace FILE")
                return 1
            if done % 100 == 0:
                print(f"{done} seeds hold", flush=True)
    took_s = time.perf_counter() - start
    rate = 60 * total["handoffs"] / took_s
    print(f"{count} seeds hold in {took_s:.0f} s: {total['handoffs']} handoffs, {rate:.0f} a minute; {dict(total)}")
    return 0


def _quiet_runs(pool: ProcessPoolExecutor, first: int, count: int) -> Iterator[Outcome]:
    return pool.map(_without_edges, range(first, first + count), chunksize=5)


def _without_edges(seed: int) -> Outcome:
    """They need not travel between processes: the seed gives them again."""
    return replace(examine(seed), edges=[])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m specs.simulate", description="Simulate whole runs of several servers.")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--seed", type=int, help="one run")
    how.add_argument("--seeds", type=int, help="so many runs, on two processes")
    parser.add_argument("--first", type=int, default=0, help="the first of --seeds")
    parser.add_argument("--trace", type=Path, help="with --seed: write its edges there")
    parser.add_argument("--plant", default="", help="with --seed: plant a mistake whose name has these words")
    options = parser.parse_args()
    if options.seed is None:
        if options.trace or options.plant:
            parser.error("--trace and --plant need --seed")
        return many(options.first, options.seeds)
    logging.disable()
    return one(options.seed, options.plant, options.trace)


if __name__ == "__main__":
    sys.exit(main())
