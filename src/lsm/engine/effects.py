"""Events for the tables `lsm.machines.request` and `slot`, and what their effects do.

So this is where requests end: finished, failed or cancelled, in any state; each is told once, and its slot is free before the next batch.
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


class Effects:
    def __init__(self, pool: Pool, cache: Cache) -> None:
        self._pool = pool
        self._cache = cache
        self._of_request: dict[str, Callable[[Request], None]] = {
            "slot_finish": partial(self._free_slot, event="finish"),
            "slot_fail": partial(self._free_slot, event="fail"),
            "report_done": self._report_done,
            "report_failed": self._report_failed,
            "report_cancelled": self._report_cancelled,
            "others_fail": self._others_fail,
        }
        self._of_slot: dict[str, Callable[[Slot, Request], None]] = {
            "prefix_keep": cache.keep_prefix,
            "prompt_copy": self._copy_prompt,
            "context_shift": cache.moving.shift,
            "request_limit": lambda slot, request: self.finish(request, slot, "limit", truncated=True),
            "tokens_keep": lambda slot, request: None,
            "cache_clear": lambda slot, request: cache.clear(slot),
        }

    def advance(self, request: Request, event: str) -> None:
        for effect in request.machine.fire(event):
            self._of_request[effect](request)

    def move(self, slot: Slot, event: str, **facts: bool) -> None:
        request = slot.request
        assert request is not None
        for effect in slot.machine.fire(event, **facts):
            self._of_slot[effect](slot, request)

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
        for family in list(self._pool.families.values()):
            for request in family.members:
                self.fail(request, error)

    def cancel(self, id: str) -> None:
        """All choices; those that have ended ignore it."""
        for request in self._pool.families[id].members:
            self.advance(request, "cancel")

    # Effects

    def _free_slot(self, request: Request, event: str) -> None:
        slot = self._pool.slot(request)
        assert slot is not None and slot.request is request
        self.move(slot, event)
        self._pool.vacate(slot)

    def _copy_prompt(self, slot: Slot, request: Request) -> None:
        lead = self._pool.families[request.id].lead
        source = self._pool.slot(lead)
        assert source is not None
        self._cache.moving.copy(source, slot)
        request.share_prompt(lead)

    def _others_fail(self, request: Request) -> None:
        error = request.error
        assert error is not None
        for other in self._pool.families[request.id].members:
            if other is not request:
                self.fail(other, error)

    def _report_done(self, request: Request) -> None:
        assert request.finish is not None
        if (text := request.last_text()) is not None:
            self._pool.outputs.append(Piece(request.id, text))
        self._pool.outputs.append(Ended(request.id, request.finish))
        self._pool.ended(request)

    def _report_failed(self, request: Request) -> None:
        assert request.error is not None
        self._tell(request, Failed(request.id, request.error))

    def _report_cancelled(self, request: Request) -> None:
        self._tell(request, Cancelled(request.id))

    def _tell(self, request: Request, output: Failed | Cancelled) -> None:
        family = self._pool.families[request.id]
        if not family.is_told:
            self._pool.outputs.append(output)
        family.is_told = True
        self._pool.ended(request)
