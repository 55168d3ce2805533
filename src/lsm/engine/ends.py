"""How requests end: finished, failed or cancelled, in any state; each is told once, and its slot is free before the next batch.

Events go to the table `lsm.machines.request`; its effects are performed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lsm.engine.batch import Share
from lsm.engine.cache import Cache
from lsm.engine.outputs import Cancelled, Ended, Failed, Piece
from lsm.engine.pool import Pool
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.errors import LsmError
from lsm.values import Embedding, StopType


class Ends:
    def __init__(self, pool: Pool, cache: Cache) -> None:
        self._pool = pool
        self._cache = cache
        self._effects: dict[str, Callable[[Request, Slot | None], None]] = {
            "slot_finish": partial(self._free_slot, event="finish"),
            "slot_fail": partial(self._free_slot, event="fail"),
            "report_done": self._report_done,
            "report_failed": self._report_failed,
            "report_cancelled": self._report_cancelled,
        }

    def advance(self, request: Request, event: str) -> None:
        slot = self._pool.slots[request.slot_id] if request.slot_id is not None else None
        for effect in request.machine.fire(event):
            self._effects[effect](request, slot)

    def finish(self, request: Request, slot: Slot, stop_type: StopType, truncated: bool) -> None:
        request.end(stop_type, truncated, slot.id)
        self.advance(request, "finish")

    def finish_embedding(self, request: Request, embedding: Embedding) -> None:
        request.finish = embedding
        self.advance(request, "finish")

    def fail(self, request: Request, error: LsmError) -> None:
        request.error = error
        self.advance(request, "fail")

    def fail_shares(self, shares: Iterable[Share], error: LsmError) -> None:
        """Every request that has one of these parts of a batch, and has not ended."""
        for share in list(shares):
            if (request := self._pool.slots[share.slot].request) is not None:
                self.fail(request, error)

    def fail_all(self, error: LsmError) -> None:
        for request in list(self._pool.requests.values()):
            self.fail(request, error)

    # Effects

    def _free_slot(self, request: Request, slot: Slot | None, event: str) -> None:
        assert slot is not None and slot.request is request
        for effect in slot.machine.fire(event):
            if effect == "cache_clear":
                self._cache.clear(slot)
        self._pool.vacate(slot)

    def _report_done(self, request: Request, slot: Slot | None) -> None:
        assert request.finish is not None
        if (text := request.last_text()) is not None:
            self._pool.outputs.append(Piece(request.id, text))
        self._pool.forget(request, Ended(request.id, request.finish))

    def _report_failed(self, request: Request, slot: Slot | None) -> None:
        assert request.error is not None
        self._pool.forget(request, Failed(request.id, request.error))

    def _report_cancelled(self, request: Request, slot: Slot | None) -> None:
        self._pool.forget(request, Cancelled(request.id))
