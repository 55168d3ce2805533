"""The simulation of whole runs: that it holds, that it repeats itself, and that it notices."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from lsm.arena.line import Line
from lsm.verify import read_traces
from specs.simulate import first_caught, main
from specs.simulation.chance import Chance
from specs.simulation.kernel import Kernel, Killed, Place, Process
from specs.simulation.planted import PLANTED, Planted
from specs.simulation.run import examine, simulate

ROOT = Path(__file__).parents[2]


def test_one_seed_gives_one_run() -> None:
    """Design 9: a failure prints its seed; so the same seed is the same run, edge for edge, and another seed is another run."""
    first = simulate(1)
    assert first.edges and first.handoffs >= 10 and not first.problem
    assert simulate(1).edges == first.edges
    assert simulate(2).edges != first.edges


@pytest.mark.slow
def test_a_trace_is_the_same_in_another_process(tmp_path: Path) -> None:
    """Design 9: nothing depends on addresses, hash seeds, or the time of day; and `lsm verify` can read what comes out."""
    traces = [tmp_path / "0.ndjson", tmp_path / "1.ndjson"]
    for hash_seed, trace in enumerate(traces):
        command = [sys.executable, "-m", "specs.simulate", "--seed", "5", "--trace", str(trace)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, check=True, capture_output=True)
    assert traces[0].read_bytes() == traces[1].read_bytes()
    read = [replace(record, where="") for record in read_traces(traces[:1]).records]
    assert read == examine(5).edges


def _cost(planted: Planted) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if planted.seeds > 3 else []


@pytest.mark.plants_faults
@pytest.mark.parametrize("planted", [pytest.param(planted, id=planted.name, marks=_cost(planted)) for planted in PLANTED])
def test_a_planted_mistake_is_caught(planted: Planted) -> None:
    """Design 9: planted mistakes; each is noticed within the seeds that stand in its line."""
    outcome = first_caught(planted)
    assert outcome is not None, f"not caught within {planted.seeds} seeds"
    assert planted.words in outcome.problem


def test_a_failure_says_how_to_see_it_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Design 9: a failure prints its seed and reproduces."""
    trace = tmp_path / "trace.ndjson"
    assert main(["--seed", "0", "--plant", "the token goes before the memory", "--trace", str(trace)]) == 1
    told = capsys.readouterr().out
    assert "seed 0: Violation: " in told and "while nobody holds the token" in told
    assert trace.read_text().count("\n") > 10


@pytest.mark.slow
def test_many_seeds_stop_at_the_first_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """Design 9: a failure prints its seed."""
    assert main(["--seeds", "3", "--plant", "the token goes before the memory"]) == 1
    assert "again: python -m specs.simulate --seed 0" in capsys.readouterr().out
    assert main(["--seeds", "2"]) == 0
    assert "2 seeds hold" in capsys.readouterr().out


def _killed_before_call(number: int, arena: Path) -> list[str]:
    """What a line has locked when it is killed before its `number`-th call while it joins; afterwards nothing is left of it."""
    process = Process(1)
    kernel = Kernel(Chance(0), lambda place, name, lock: None)
    place = Place(process, "a")

    async def die() -> list[str]:
        kernel.newborn = place
        line = Line(arena)
        process.calls_to_live = number
        with pytest.raises(Killed):
            line.door_try()
            line.ticket_make()
            line.ticket_lock()
        with pytest.raises(Killed):
            line.leave()
        left = kernel.locks(place)
        await kernel.bury(process)
        assert kernel.locks(place) == []
        return left

    with kernel.interposed():
        return trio.run(die, clock=MockClock(autojump_threshold=0))


def test_a_process_can_die_between_any_two_calls(tmp_path: Path) -> None:
    """Design 3: `kill -9` at any step; nothing of a dead process runs, and its locks are there until it is buried."""
    seen = [_killed_before_call(number, tmp_path / str(number)) for number in range(7)]
    door, want = "door.lock exclusive", "want.lock shared"  # the last call, which does not come, would lock the ticket
    assert seen == [[], [], [door], *4 * [[door, want]]]
    for number in range(7):
        with Line(tmp_path / str(number)) as after:
            assert after.door_try()
