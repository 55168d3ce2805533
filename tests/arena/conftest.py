from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.arena.line import Line

from .helpers import ACTOR, Child

DEADLINE_S = 30


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """A mistake in the line makes it wait for ever; a test must say so instead of waiting with it."""

    def too_late(*_: object) -> None:
        raise TimeoutError(f"the test has not ended in {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, too_late)
    # Again every second, because a search for the smallest failing example swallows the first one.
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S, 1)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    return tmp_path / "arena"


@pytest.fixture
def new_line(arena: Path) -> Iterator[Callable[..., Line]]:
    """Make lines in this process; they are closed at the end."""
    with contextlib.ExitStack() as lines:
        yield lambda label="": lines.enter_context(Line(arena, label))


@pytest.fixture
def start(arena: Path) -> Iterator[Callable[..., Child]]:
    """Start processes with one line each; they are killed at the end."""
    children: list[Child] = []

    def start_child(label: str = "") -> Child:
        children.append(Child(ACTOR, arena, label))
        return children[-1]

    yield start_child
    for child in children:
        child.kill()
