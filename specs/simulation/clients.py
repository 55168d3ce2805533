"""Clients: they ask, wait, lose patience, hang up, and are cut off when a server dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import trio

from lsm.errors import LsmError, Unavailable
from lsm.runtime.answer import Answer
from lsm.runtime.owner import Owner
from lsm.values import Finish, Options, Text
from specs.simulation.chance import Chance
from specs.simulation.judge import Violation
from specs.simulation.server import Life, Server

TOKENS = (1, 1, 1, 2, 5, 20)
_PROMPT = np.zeros(1, np.int32)


@dataclass(eq=False)
class Clients:
    chance: Chance
    ends: Counter[str] = field(default_factory=Counter)
    answers: list[tuple[Life, Owner, Answer]] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=count)

    async def visit(self, server: Server, alias: str, pause_s: float, until: trio.Event) -> None:
        """One client of one model: one thing after the other, with pauses, until told."""
        chance = self.chance
        while not until.is_set():
            life = await server.up()
            act = chance.choices((self.ask, self.ask_and_hang_up, self.wake, self.sleep, self.load), (60, 20, 8, 8, 4))[0]
            try:
                with life.connection():
                    await act(life, life.owners[alias])
            except Unavailable as refusal:
                self.ends[type(refusal).__name__] += 1
            except LsmError as error:
                raise Violation(f"{alias} answers {type(error).__name__}, which is nobody's business outside: {error}") from error
            await trio.sleep(chance.pause(pause_s))

    async def ask(self, life: Life, owner: Owner, tokens: int = 0) -> None:
        """A whole answer, or an error."""
        tokens = tokens or self.chance.choice(TOKENS)
        answer = owner.submit(str(next(self._numbers)), _PROMPT, Options(max_tokens=tokens))
        self.answers.append((life, owner, answer))
        try:
            await _read(answer, tokens)
            self.ends["done"] += 1
        finally:
            if not life.process.dead:
                owner.cancel(answer)

    async def ask_and_hang_up(self, life: Life, owner: Owner) -> None:
        with trio.move_on_after(self.chance.choice((0, 0.001, 0.05, 0.5, 2.0))) as patience:
            await self.ask(life, owner)
        self.ends["hung up"] += patience.cancelled_caught

    async def wake(self, life: Life, owner: Owner) -> None:
        with trio.move_on_after(self.chance.choice((0, 0.01, 1.0, 60.0))):
            await owner.wake()

    async def sleep(self, life: Life, owner: Owner) -> None:
        await owner.sleep()

    async def load(self, life: Life, owner: Owner) -> None:
        await owner.load()

    def unanswered(self) -> list[Answer]:
        """Requests to living servers that have not ended."""
        return [answer for life, _, answer in self.answers if not life.process.dead and not answer.ended]


async def _read(answer: Answer, tokens: int) -> None:
    """Every token once, in order, then the end."""
    expected = list(range(tokens - 1, -1, -1))
    got: list[int] = []
    async for event in answer:
        if isinstance(event, Text):
            got += event.tokens
        elif isinstance(event, Finish) and got != expected:
            raise Violation(f"request {answer.request_id} got tokens {got}, not {expected}")
