"""The line under stress, judged; and the judge, shown lines with planted mistakes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from lsm.arena.line import Line
from lsm.arena.wait import wait

from .helpers import child_environ, names
from .judge import Verdict, judge, read


def stress(arena: Path, seconds: float, seed: int = 1, mistake: str = "none") -> tuple[Verdict, int, int]:
    """The judge's verdict, the number of stranded processes, the number of failed ones."""
    log = arena.with_suffix(f".{seed}.log")
    script = Path(__file__).with_name("stress.py")
    command = [sys.executable, str(script), str(arena), str(log), str(seconds), str(seed), mistake]
    done = subprocess.run(command, env=child_environ(), stdout=subprocess.PIPE, text=True, check=True)
    stranded, errors = map(int, done.stdout.split())
    return judge(read(log.read_text())), stranded, errors


@pytest.mark.slow
def test_nobody_overtakes_nobody_is_stranded(arena: Path) -> None:
    """S1: four processes, killed and stopped before and after any kernel call."""
    verdict, stranded, errors = stress(arena, 4)
    assert verdict.counts["turn"] > 100 and verdict.counts["kill"] > 5 and verdict.counts["stop"] > 3
    assert (verdict.overtakings, verdict.double_holders, stranded, errors) == (0, 0, 0, 0)
    with Line(arena) as line:
        assert not line.wanted() and wait(line)
    assert names(arena) == []


@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["no door", "no second look", "watches nobody", "ignores token"])
def test_judge_catches_planted_mistakes(arena: Path, mistake: str) -> None:
    """S1: a stress test whose judge sleeps would pass for ever."""
    for seed in itertools.count(1):
        verdict, _, _ = stress(arena, 0.6, seed, mistake)
        if mistake == "ignores token" and verdict.double_holders or mistake != "ignores token" and verdict.overtakings:
            return
        assert seed < 20, "never caught"
