"""Slots for those who wait, in the order in which they came."""

from __future__ import annotations

from lsm.engine.cache import Cache
from lsm.engine.effects import Effects
from lsm.engine.family import Family
from lsm.engine.limits import Limits
from lsm.engine.outputs import Prefilled
from lsm.engine.pool import Pool
from lsm.engine.prefix import choose_slot
from lsm.engine.prompt import text_tokens
from lsm.engine.request import Request
from lsm.engine.slot import Slot


class Assigner:
    def __init__(self, pool: Pool, cache: Cache, effects: Effects, limits: Limits) -> None:
        self._pool = pool
        self._cache = cache
        self._effects = effects
        self._limits = limits

    def assign(self) -> None:
        """Who waits for one certain slot lets others pass; who needs several lets nobody pass, or would never see them free together."""
        n_waiting = len(self._pool.queue)
        self._assign()
        if len(self._pool.queue) < n_waiting:
            self._cache.stashing.put_idle_away()

    def _assign(self) -> None:
        for family in list(self._pool.queue):
            idle = self._pool.idle()
            if not idle:
                return
            options = family.options
            similarity_min = self._limits.similarity_min if options.cache_prompt else 0.0
            candidates = [slot.candidate() for slot in idle]
            chosen = choose_slot(family.lead.prompt, candidates, options.id_slot, similarity_min)
            if chosen is None:
                continue
            if len(idle) < len(family.members):
                return
            self._start(family, self._pool.slots[chosen])

    def _start(self, family: Family, slot: Slot) -> None:
        self._pool.queue.remove(family)
        self._start_in(family.lead, slot)
        least_used = sorted(self._pool.idle(), key=lambda slot: (slot.last_used, slot.id))
        for request, other in zip(family.members[1:], least_used, strict=False):
            self._start_in(request, other)
        if family.options.return_progress:
            self._pool.outputs.append(Prefilled(family.id, family.lead.progress()))

    def _start_in(self, request: Request, slot: Slot) -> None:
        self._pool.occupy(slot, request)
        self._effects.advance(request, "start")
        self._effects.move(slot, "assign", lead=request.index == 0)
        if request.sampler is not None and request.n_look_back:
            request.sampler.accept_prompt(text_tokens(request.prompt)[-request.n_look_back :].tolist())
