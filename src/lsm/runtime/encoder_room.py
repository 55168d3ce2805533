"""Room on the device for an encoder: asked for on the engine's thread, counted in the owner's ledger, which belongs to trio."""

from __future__ import annotations

from collections.abc import Callable

import trio

from lsm.runtime.room_effects import RoomEffects

ENCODER = "encoder"


class EncoderRoom:
    """`lsm.engine.encoder.Room`.  After the end of trio there is no room, and nothing to give back."""

    def __init__(self, ledger_of: Callable[[], RoomEffects], trio_token: trio.lowlevel.TrioToken) -> None:
        self._ledger_of = ledger_of
        self._trio_token = trio_token

    def take(self, size_bytes: int) -> bool:
        try:
            return trio.from_thread.run_sync(lambda: self._ledger_of().grow(ENCODER, size_bytes), trio_token=self._trio_token)
        except trio.RunFinishedError:
            return False

    def give_back(self) -> None:
        try:
            trio.from_thread.run_sync(lambda: self._ledger_of().shrink(ENCODER), trio_token=self._trio_token)
        except trio.RunFinishedError:
            pass
