"""Those who disturb: kill -9, SIGSTOP, programs from outside that take the token."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.arena import actor
from tests.soak.book import ERROR, Book
from tests.soak.handoffs import Handoffs
from tests.soak.node import PATIENCE_S, Node

KILL_EVERY, KILL_IN_LOAD_CHANCE = 20, 0.25
DOOM_CHANCE, DOOM_S = 0.5, 5.0
STATES = ("doorway", "joining", "waiting", "taking", "waking", "awake", "draining", "sleeping", "asleep")
FREEZE_EVERY, FREEZE_S = 25, 0.15
OUTSIDER_EVERY, OUTSIDER_HOLDS_S, OUTSIDER_DIES_CHANCE = 20, 0.03, 0.3
STRANGER_EVERY, STRANGER_TRIES_S, STRANGER_HOLDS_S = 30, 0.3, 0.02


def keep_disturbing(
    disturb: Callable[[], None], every: int, handoffs: Handoffs, book: Book, rng: random.Random, end: threading.Event
) -> None:
    """Once in `every` handoffs on average, at a moment that has nothing to do with them."""
    while handoffs.wait_for_more(rng.randint(1, 2 * every - 1), end, book.over):
        end.wait(rng.uniform(0, 0.05))
        try:
            disturb()
        except Exception as error:  # whatever it is, the soak must not go on without its nemesis
            book.violation(ERROR, f"{disturb}: {type(error).__name__}: {error}")


class Killer:
    """kill -9 to a server, which is then started again.

    Sometimes it is killed again while it loads; sometimes it comes back to die by itself, in a state of the token machine.
    """

    def __init__(self, nodes: list[Node], book: Book, rng: random.Random, end: threading.Event) -> None:
        self._nodes, self._book, self._rng, self._end = nodes, book, rng, end
        self.killed: list[int] = []

    def __call__(self) -> None:
        node = self._rng.choice(self._nodes)
        with self._book.disturbing():
            self._kill(node)
            while self._rng.random() < KILL_IN_LOAD_CHANCE:
                node.start()
                self._end.wait(self._rng.uniform(0, 0.2))
                self._kill(node)
        if self._rng.random() < DOOM_CHANCE:
            self._let_die(node)
        with self._book.disturbing():
            node.start()
            node.wait_until_it_serves()

    def _let_die(self, node: Node) -> None:
        """The first time through its states it loads, and lives."""
        with self._book.disturbing():
            node.start(self._rng.choice(STATES), str(self._rng.randint(2, 3)))
            node.wait_until_it_serves()
        with suppress(subprocess.TimeoutExpired):
            node.server.process.wait(DOOM_S)
        with self._book.disturbing():
            self._kill(node)

    def _kill(self, node: Node) -> None:
        self.killed.append(node.pid)
        node.kill()
        self._book.count("kills")


class Freezer:
    """SIGSTOP for a moment.  Who is frozen in the line freezes those behind it; that is so by design."""

    def __init__(self, nodes: list[Node], book: Book, rng: random.Random, end: threading.Event) -> None:
        self._nodes, self._book, self._rng, self._end = nodes, book, rng, end

    def __call__(self) -> None:
        with self._book.disturbing():
            self._rng.choice(self._nodes).freeze(self._rng.uniform(0.01, FREEZE_S), self._end)
        self._book.count("stops")


class Outsider:
    """Another program in the line: it waits for its turn, holds the token for a moment, leaves; or is killed at any of these."""

    def __init__(self, arena: Path, book: Book, rng: random.Random, end: threading.Event) -> None:
        self._arena, self._book, self._rng, self._end = arena, book, rng, end

    def __call__(self) -> None:
        command = [sys.executable, actor.__file__, str(self._arena), "outsider"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None and process.stdout.readline() == "ready\n"
                with self._book.disturbing():
                    dies = self._rng.random() < OUTSIDER_DIES_CHANCE
                    self._take_a_turn(process, dies)
                    process.kill()
                    process.wait()
            finally:
                process.kill()
        self._book.count("outside programs killed" if dies else "outside programs in the line")

    def _take_a_turn(self, process: subprocess.Popen[str], dies: bool) -> None:
        """If it `dies`, this may end anywhere."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("wait\n")
        process.stdin.flush()
        if dies and self._rng.random() < 0.5:
            self._end.wait(self._rng.uniform(0, OUTSIDER_HOLDS_S))
            return
        patience = threading.Timer(PATIENCE_S, process.kill)
        patience.start()
        answer = process.stdout.readline()
        patience.cancel()
        assert answer == "True\n", f"an outside program had no turn within {PATIENCE_S:.0f} s: {answer!r}"
        self._end.wait(self._rng.uniform(0, OUTSIDER_HOLDS_S))
        if not dies:
            process.stdin.write("leave\n")
            process.stdin.flush()
            process.stdout.readline()


class Stranger:
    """Takes the bare lock, past the line, when it happens to be free."""

    def __init__(self, arena: Path, book: Book, rng: random.Random, end: threading.Event) -> None:
        self._arena, self._book, self._rng, self._end = arena, book, rng, end

    def __call__(self) -> None:
        fd = os.open(self._arena / "token.lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            for _ in range(int(STRANGER_TRIES_S / 0.0005)):
                if self._try(fd) or self._end.wait(0.0005):
                    return
        finally:
            os.close(fd)

    def _try(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with self._book.disturbing():
            self._end.wait(self._rng.uniform(0, STRANGER_HOLDS_S))
        self._book.count("holders outside the line")
        return True
