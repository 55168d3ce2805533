"""What recording costs: `python -m tests.bench.trace_cost`.  Times per edge, best of some runs, and as multiples of a bare `step`.

Nothing here is a test: a busy machine would fail it.  The aim: under 2 us an edge while nothing is recorded, under 20 us while it is.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lsm.machines.table import step
from lsm.machines.token import TOKEN
from lsm.runtime.executor import Executor, Observer
from lsm.runtime.trace import Recorder

EDGES, RUNS = 5_000, 9
FACTS = {"rested": True, "wanted": True, "due": False}  # the edge with the most facts
NEED = ("need", "door_won", "made", "first", "token_won", "mapped")


def best_us(act: Callable[[], object]) -> float:
    """Microseconds of one call, in the best of some runs of many."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(EDGES):
            act()
        times.append(time.perf_counter() - start)
    return min(times) / EDGES * 1e6


def awake(observer: Observer | None) -> Executor:
    token = Executor(TOKEN, "a model", observer)
    for event in NEED:
        token.fire(event)
    return token


def fire_us(observer: Observer | None) -> float:
    token = awake(observer)
    try:
        return best_us(lambda: token.fire("look", **FACTS))
    finally:
        token.close()


def main() -> None:
    bare = best_us(lambda: step(TOKEN, "awake", "look", FACTS))
    off = fire_us(None)
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "trace")
        on = fire_us(recorder)
        recorder.close()
    check = best_us(lambda: None is not None)  # all that an executor does for a recorder that is not there, and the call around it
    rows = [
        ("a bare step of the table", bare, ""),
        ("an edge through the executor, nothing recorded", off, ""),
        ("recording off adds", check, "aim: under 2 us"),
        ("recording on adds", on - off, "aim: under 20 us"),
    ]
    print(f"{'per edge':<48} {'us':>8} {'x step':>8}")
    for name, us, aim in rows:
        print(f"{name:<48} {us:8.2f} {us / bare:8.2f}  {aim}")


if __name__ == "__main__":
    main()
