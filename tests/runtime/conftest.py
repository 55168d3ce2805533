"""Owners on one real arena, with scripted engines on one device, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from lsm.arena.ledger import Ledger
from lsm.arena.line import Line
from lsm.runtime.answer import Answer
from lsm.runtime.changes import Changes
from lsm.runtime.executor import Fired
from lsm.runtime.owner import Owner
from lsm.runtime.room_effects import Budget
from lsm.values import Options

from .scripted_engine import Device, Script, ScriptedEngine


class House:
    """The models that share one device."""

    def __init__(self, arena: Path, nursery: trio.Nursery, files: ExitStack) -> None:
        self.arena = arena
        self.device = Device()
        self.budget_bytes: int | None = None
        self.changes = Changes()
        self.scripts: dict[str, Script] = {}
        self.fired: list[Fired] = []
        self._nursery = nursery
        self._files = files
        self._count = 0

    async def model(self, name: str, *, idle_s: float = -1.0, quantum_s: float = 2.0, loaded: bool = True, **script: Any) -> Owner:
        """A new owner, awake if `loaded`.  `**script`: see `Script`."""
        self.scripts[name] = Script(**script)
        owner = Owner(
            name,
            self._files.enter_context(Line(self.arena, name)),
            self._files.enter_context(Ledger(self.arena, name)),
            partial(ScriptedEngine, self._nursery, self.device, name, self.scripts[name]),
            self.changes,
            budget=Budget(self.budget_bytes, clock_s=trio.current_time),
            min_hold_s=0.1,
            quantum_s=quantum_s,
            idle_s=idle_s,
            evict_kv=False,
            observer=self.fired.append,
        )
        await self._nursery.start(owner.run)
        if loaded:
            await owner.wake()
        return owner

    def start(self, owner: Owner, tokens: int = 1) -> Answer:
        self._count += 1
        return owner.submit(str(self._count), np.zeros(1, np.int32), Options(max_tokens=tokens))

    async def serve(self, owner: Owner, tokens: int = 1) -> int:
        """One whole request; the number of tokens that came."""
        return await read(self.start(owner, tokens))

    async def until(self, condition: Callable[[], bool]) -> None:
        version = self.changes.version
        while not condition():
            version = await self.changes.after(version)


async def read(answer: Answer) -> int:
    return sum([len(getattr(event, "tokens", ())) async for event in answer])


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
async def house(tmp_path: Path, nursery: trio.Nursery, files: ExitStack) -> House:
    return House(tmp_path / "arena", nursery, files)
