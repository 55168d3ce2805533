"""Greedy decoding of several sequences, keeping every token and every row of logits, to compare bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.sampler import Sampler
from lsm.tuning import Placing

Ints = NDArray[np.int64]
ALL = ("weights", "kv", "compute")
ON_THE_CPU = Placing(devices=())  # for what is true of its memory alone, also where there is a GPU


@dataclass
class Trace:
    tokens: list[int] = field(default_factory=list)
    rows: list[NDArray[np.float32]] = field(default_factory=list)

    def same_as(self, other: Trace) -> bool:
        """Tokens equal and every logit the same 32 bits."""
        mine, theirs = np.array(self.rows), np.array(other.rows)
        return self.tokens == other.tokens and mine.tobytes() == theirs.tobytes()


class Runner:
    def __init__(self, model: Model, context: Context) -> None:
        self.model, self.context = model, context
        self.greedy = Sampler(model.vocab, [("greedy", {})])
        self.trace = Trace()
        self.last: dict[int, int] = {}
        self.next: dict[int, int] = {}

    def prompt(self, sequence: int, tokens: Sequence[int]) -> None:
        n = len(tokens)
        positions = self.next.get(sequence, 0) + np.arange(n)
        self.next[sequence] = int(positions[-1]) + 1
        outputs = np.zeros(n, np.int8)
        outputs[-1] = 1
        self._decode(np.array(tokens), positions, np.full(n, sequence), outputs, [n - 1], [sequence])

    def steps(self, n: int) -> None:
        """One token more for every sequence, all in one batch, n times."""
        for _ in range(n):
            sequences = sorted(self.last)
            tokens = np.array([self.last[s] for s in sequences])
            positions = np.array([self.next[s] for s in sequences])
            for sequence in sequences:
                self.next[sequence] += 1
            self._decode(tokens, positions, np.array(sequences), np.ones(len(tokens), np.int8), list(range(len(tokens))), sequences)

    def copy(self, source: int, target: int) -> None:
        self.context.seq_rm(target)
        self.context.seq_cp(source, target)
        self.last[target], self.next[target] = self.last[source], self.next[source]

    def _decode(
        self, tokens: Ints, positions: Ints, sequences: Ints, outputs: NDArray[np.int8], rows: list[int], owners: list[int]
    ) -> None:
        batch = tokens.astype(np.int32), positions.astype(np.int32), sequences.astype(np.int32)
        step = self.context.step(*batch, outputs, np.array(rows, np.int32), [self.greedy] * len(rows), logits=True)
        assert step.code == 0 and step.logits is not None
        for sequence, token, row in zip(owners, step.sampled, step.logits, strict=True):
            self.last[sequence] = int(token)
            self.trace.tokens.append(int(token))
            self.trace.rows.append(row)


def open_context(model: Model, **settings: object) -> Context:
    defaults = {"n_ctx": 768, "n_batch": 128, "n_ubatch": 64, "n_seq_max": 3, "kv_unified": False, "threads": 1, "threads_batch": 1}
    return Context(model, model.owner, **(defaults | settings))  # type: ignore[arg-type]


def prompt_tokens(model: Model, n: int, salt: int) -> list[int]:
    """n tokens that are the same in every run."""
    return [3 + (i * 7919 + salt * 104729) % (model.vocab.n_tokens - 3) for i in range(n)]


def story(model: Model, context: Context, pause: Callable[[], None], *, n_prompt: int = 40, n_steps: int = 4) -> Trace:
    """Two conversations, pauses in the middle of them, a copy of the first into a third, and a long second prompt at the end."""
    context.memory_clear()
    run = Runner(model, context)
    run.prompt(0, prompt_tokens(model, n_prompt, 1))
    run.prompt(1, prompt_tokens(model, n_prompt // 2, 2))
    for _ in range(3):
        run.steps(n_steps)
        pause()
    run.copy(0, 2)
    pause()
    run.steps(n_steps)
    run.prompt(1, prompt_tokens(model, n_prompt, 3))
    pause()
    run.steps(n_steps)
    return run.trace


def cycle(model: Model, context: Context, *classes: str) -> Callable[[], None]:
    """A pause in which these classes go away and come back."""

    def pause() -> None:
        context.synchronize()
        model.memory.release(*classes)
        assert not any(model.memory.resident(name) for name in classes)
        model.memory.restore(*classes)
        assert all(model.memory.resident(name) for name in classes)

    return pause
