"""A busy event loop: an owner comes to its events late, now and then, so more of them are under way at once."""

from __future__ import annotations

import trio

from lsm.runtime.inbox import Event, Inbox
from specs.simulation.chance import Chance
from specs.simulation.durations import BUSY_MAX_S


class BusyInbox(Inbox):
    def __init__(self, chance: Chance, how_often: float) -> None:
        super().__init__()
        self._chance, self._how_often = chance, how_often

    async def next(self) -> Event:
        if self._chance.random() < self._how_often:
            await trio.sleep(self._chance.lasting(0.0, BUSY_MAX_S))
        return await super().next()
