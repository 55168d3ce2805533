"""Tells whoever listens that something changed.  Level, not edge: a listener that was busy sees the newest state, once."""

from __future__ import annotations

import trio


class Changes:
    def __init__(self) -> None:
        self.version = 0
        self._news = trio.Event()

    def happened(self) -> None:
        self.version += 1
        self._news.set()
        self._news = trio.Event()

    async def after(self, version: int) -> int:
        """Wait until there is a newer version than `version`; return it."""
        while self.version == version:
            await self._news.wait()
        return self.version
