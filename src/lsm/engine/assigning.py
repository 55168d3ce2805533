"""Slots for those who wait, in the order in which they came."""

from __future__ import annotations

from lsm.engine.cache import Cache
from lsm.engine.ends import Ends
from lsm.engine.limits import Limits
from lsm.engine.pool import Pool
from lsm.engine.prefix import choose_slot
from lsm.engine.prompt import text_tokens
from lsm.engine.request import Request
from lsm.engine.slot import Slot


class Assigner:
    def __init__(self, pool: Pool, cache: Cache, ends: Ends, limits: Limits) -> None:
        self._pool = pool
        self._cache = cache
        self._ends = ends
        self._limits = limits

    def assign(self) -> None:
        """Who waits for one certain slot lets others pass."""
        n_waiting = len(self._pool.queue)
        self._assign()
        if len(self._pool.queue) < n_waiting:
            self._cache.stashing.put_idle_away()

    def _assign(self) -> None:
        for request in list(self._pool.queue):
            idle = [slot.candidate() for slot in self._pool.idle()]
            if not idle:
                return
            options = request.options
            similarity_min = self._limits.similarity_min if options.cache_prompt else 0.0
            chosen = choose_slot(request.prompt, idle, options.id_slot, similarity_min)
            if chosen is not None:
                self._pool.queue.remove(request)
                self._start(request, self._pool.slots[chosen])

    def _start(self, request: Request, slot: Slot) -> None:
        self._pool.occupy(slot, request)
        self._ends.advance(request, "start")
        for effect in slot.machine.fire("assign"):
            assert effect == "prefix_keep", effect
            self._cache.keep_prefix(request, slot)
        if request.sampler is not None and request.n_look_back:
            request.sampler.accept_prompt(text_tokens(request.prompt)[-request.n_look_back :].tolist())
