"""A busy event loop: now and then an owner comes late to its events, and finds several."""

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
        """Late for the first event after a rest only: what has come meanwhile is worked off without a pause, as it really is."""
        if not self._events and self._chance.random() < self._how_often:
            self._events.appendleft(await super().next())
            await trio.sleep(self._chance.lasting(0.0, BUSY_MAX_S))
        return await super().next()
