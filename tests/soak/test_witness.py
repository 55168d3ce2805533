"""The witness is awake: what it must see, it sees, in real processes too."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.soak.book import ALONE, DOUBLE
from tests.soak.witness import Hold, Look, Witness, judge

LIMIT = {1: 100, 2: 100}
MIB = 1 << 20

# Takes the lock that it is given, if any, and that much memory; then lives until its input ends.
HOARDER = """
import fcntl, sys
if sys.argv[1]:
    lock = open(sys.argv[1], "r+")
    fcntl.flock(lock, fcntl.LOCK_EX)
hoard = bytearray(b"x") * (int(sys.argv[2]) << 20)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("before", "sizes", "after", "found"),
    [
        (Hold(1, 5), {1: 200, 2: 50}, Hold(1, 5), None),
        (Hold(None, 5), {1: 50, 2: 50}, Hold(None, 5), None),
        (Hold(1, 5), {1: 200, 2: 200}, Hold(1, 5), DOUBLE),
        (Hold(2, 5), {1: 200, 2: 50}, Hold(2, 5), ALONE),
        (Hold(None, 5), {1: 200, 2: 50}, Hold(None, 5), ALONE),
        (Hold(1, 5), {1: 200, 2: 200}, Hold(2, 6), None),
        (Hold(1, 5), {1: 200, 2: 200}, Hold(1, 7), None),
    ],
    ids=["the holder", "nobody", "two", "another", "no holder", "handed on meanwhile", "handed on and back meanwhile"],
)
def test_what_is_evidence(before: Hold, sizes: dict[int, int], after: Hold, found: str | None) -> None:
    """Design 3.1: resident implies token, never two; sizes that were not read at one moment prove nothing."""
    violation = judge(Look(before, sizes, after), LIMIT)
    assert (violation and violation[0]) == found


@contextmanager
def hoarder(lock: str, mib: int) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", HOARDER, lock, str(mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield process.pid
        process.kill()


class Heard:
    """Waits until the witness has told of something."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.any = threading.Event()

    def __call__(self, kind: str, story: str) -> None:
        self.kinds.append(kind)
        self.any.set()


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    (tmp_path / "token.lock").touch()
    return tmp_path


def watched(arena: Path, *pids: int) -> tuple[set[str], set[int]]:
    heard = Heard()
    with Witness(arena, heard) as witness:
        for pid in pids:
            witness.watch(pid, 64 * MIB)
        heard.any.wait(5)
    return set(heard.kinds), witness.seen


def test_memory_without_the_token_is_seen(arena: Path) -> None:
    """Real soak: a witness that reads /proc only."""
    with hoarder("", 100) as pid:
        assert watched(arena, pid) == ({ALONE}, {pid})


def test_two_with_memory_are_seen(arena: Path) -> None:
    """Real soak: double residency; the one who has it without the token may be seen first, before the other is watched."""
    with hoarder(str(arena / "token.lock"), 100) as holder, hoarder("", 100) as other:
        kinds, seen = watched(arena, holder, other)
        assert DOUBLE in kinds and seen == {holder, other}


def test_the_holder_may_have_memory_and_others_may_live(arena: Path) -> None:
    """The witness does not cry wolf."""
    with hoarder(str(arena / "token.lock"), 100) as holder, hoarder("", 1) as other:
        heard = Heard()
        with Witness(arena, heard) as witness:
            witness.watch(other, 64 * MIB)
            witness.watch(holder, 64 * MIB)
            while holder not in witness.seen or witness.looks < 20:
                assert not heard.any.wait(0.005), heard.kinds
        assert witness.seen == {holder}


def test_who_is_forgotten_is_not_looked_at(arena: Path) -> None:
    """A number that the kernel gives to another process is no evidence."""
    with hoarder("", 100) as pid, open(arena / "token.lock", "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        heard = Heard()
        with Witness(arena, heard) as witness:
            witness.watch(os.getpid(), 1 << 40)
            witness.watch(pid, 64 * MIB)
            assert heard.any.wait(5)
            witness.forget(pid)
            looks = witness.looks
            while witness.looks < looks + 2:  # the one under way may still see it
                threading.Event().wait(0.005)
            told = len(heard.kinds)
            while witness.looks < looks + 10:
                threading.Event().wait(0.005)
        assert len(heard.kinds) == told
