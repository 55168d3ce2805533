"""A place for a server, which may be killed there and come back."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.e2e.observer import rss_bytes
from tests.e2e.servers import PROGRAM, Server
from tests.soak.models import FIRST_WORD, N_WORDS, WEIGHT_BYTES
from tests.soak.witness import Witness

MIN_HOLD_MS, QUANTUM_MS = 10, 40
# One slot, no cache: an answer is computed in the same batches, over the same cells, whatever was asked before.
FLAGS = ("--parallel", "1", "--ctx-size", "1024", "--min-hold-ms", str(MIN_HOLD_MS), "--quantum-ms", str(QUANTUM_MS))
PATIENCE_S = 60.0
LENGTHS = (4, 16, 64, 400)  # tokens; the longest takes longer than a quantum


@dataclass(frozen=True)
class Question:
    prompt: tuple[int, ...]
    n_tokens: int

    def body(self, stream: bool = False) -> dict[str, object]:
        return {
            "prompt": list(self.prompt), "max_tokens": self.n_tokens, "stream": stream,
            "temperature": 0, "ignore_eos": True, "cache_prompt": False,
        }  # fmt: skip


def make_questions(rng: random.Random, n: int) -> list[Question]:
    def words() -> tuple[int, ...]:
        return tuple(FIRST_WORD + rng.randrange(N_WORDS) for _ in range(rng.randint(1, 120)))

    return [Question((1, *words()), LENGTHS[i % len(LENGTHS)]) for i in range(n)]


class Node:
    """`life` counts deaths: it grows before the process is killed, so that whoever is cut off can tell why.

    `serving`: the server can be asked.  `is_doomed`: it will kill itself.  `answers`: what it answers undisturbed.
    """

    def __init__(self, alias: str, model: Path, arena: Path, trace: Path, *flags: str, program: Sequence[str] = PROGRAM) -> None:
        self.alias = alias
        self.life = 0
        self.is_doomed = False
        self.serving = threading.Event()
        self.answers: dict[Question, str] = {}
        self.witness: Witness | None = None
        self.cold_bytes = 0
        self.pids: list[int] = []  # of all lives
        self._model, self._arena, self._trace, self._flags, self._program = model, arena, trace, flags, program
        self._exit = ExitStack()
        self._signals = threading.Lock()

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def url(self) -> str:
        return self.server.url

    def start(self, *death: str) -> None:
        """Until it listens; its model may still be loading.  `death`: arguments of `mortal_server`."""
        self.is_doomed = bool(death)
        self.server = Server(
            self._arena,
            self._model,
            self.alias,
            *FLAGS,
            *self._flags,
            wait=False,
            environ={"LSM_TRACE": str(self._trace)},
            program=("-m", "tests.soak.mortal_server", *death) if death else self._program,
        )
        self.pids.append(self.pid)
        if self.witness is not None:
            self.witness.watch(self.pid, self.threshold_bytes)
        self._exit.enter_context(self.server)

    def wait_until_it_serves(self) -> None:
        self.server.until(lambda: self.server.get("/health").status_code == 200)
        self.serving.set()

    def stop(self) -> None:
        """In order.  AssertionError if it ends badly."""
        self.serving.clear()
        self._exit.close()

    def kill(self) -> None:
        with self._signals:
            self.life += 1
            self.serving.clear()
            self.server.kill()
        self._exit.close()
        if self.witness is not None:
            self.witness.forget(self.pid)

    def freeze(self, seconds: float, over: threading.Event) -> None:
        """SIGSTOP, then SIGCONT, unless it was killed meanwhile."""
        with self._signals:
            if self.server.process.poll() is not None:
                return
            life = self.life
            self._signal(signal.SIGSTOP)
        over.wait(seconds)
        with self._signals:
            if self.life == life:
                self._signal(signal.SIGCONT)

    def _signal(self, signal: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # the doomed may be gone at any moment
            os.kill(self.pid, signal)

    def learn(self, questions: list[Question]) -> None:
        """Ask everything while nobody else wants the device, and find out how much memory a sleeper has."""
        for question in questions:
            self.answers[question] = ask(self.server.client, question)
        assert len(set(self.answers.values())) == len(questions), "this model gives one answer to two questions"
        warm = self._measure_warm(questions[-1])
        self.cold_bytes = self.measure_cold()
        assert warm - self.cold_bytes > 0.9 * WEIGHT_BYTES, f"the weights cannot be seen from outside: {warm} and {self.cold_bytes} bytes"

    def _measure_warm(self, question: Question) -> int:
        """Resident bytes in the middle of an answer: afterwards it may fall asleep at once."""
        with self.server.client.stream("POST", "/v1/completions", json=question.body(stream=True)) as response:
            next(response.iter_lines())
            return rss_bytes(self.pid)

    def measure_cold(self) -> int:
        """Resident bytes while asleep."""
        response = self.server.post("/lsm/sleep", {"model": self.alias})
        assert response.status_code == 200, response.text
        return rss_bytes(self.pid)

    @property
    def threshold_bytes(self) -> int:
        return self.cold_bytes + WEIGHT_BYTES // 2


def ask(client: httpx.Client, question: Question) -> str:
    response = client.post("/v1/completions", json=question.body())
    assert response.status_code == 200, f"{response.status_code}: {response.text}"
    body = response.json()
    assert body["usage"]["completion_tokens"] == question.n_tokens, body["usage"]
    return str(body["choices"][0]["text"])
