"""Slots and the prompt cache in host memory: what a slot is about to lose goes there, what serves its new prompt better comes back (D.2).

States of sequences are read and written here, so the memory must be resident (S6): only steps of the scheduler come here.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from lsm.engine.checkpoints import State, within
from lsm.engine.limits import Limits
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder
from lsm.engine.prompt_cache import Entry, PromptCache
from lsm.engine.request import Request
from lsm.engine.rewinding import Rewinding
from lsm.engine.slot import Slot

log = logging.getLogger("lsm.engine")

KEEP_MIN = 0.5  # a slot that would lose more than this part of its content has it stored first


class Stashing:
    def __init__(self, pool: Pool, decoder: Decoder, rewinding: Rewinding, limits: Limits) -> None:
        self.cache = PromptCache(limits.cache_limit_bytes, limits.cache_limit_tokens)
        self._pool = pool
        self._decoder = decoder
        self._rewinding = rewinding
        self._limits = limits

    @property
    def is_on(self) -> bool:
        return self._limits.cache_limit_bytes != 0

    def exchange(self, slot: Slot, request: Request) -> None:
        """Before the slot takes the prompt: store its content if most of it goes, and load what serves the prompt better."""
        slot.put_away = None
        prompt, held = request.held, slot.held
        n_common = held.shared(prompt) if request.options.cache_prompt else 0
        is_similar = n_common > self._limits.similarity_min * len(request.prompt)
        if not self.is_on or (is_similar and n_common >= KEEP_MIN * slot.n):
            return
        if n_common < slot.n:
            self._store(slot)
        better = self.cache.take_better(held, prompt) if request.options.cache_prompt else None
        if better is not None:
            self._load(slot, better)

    def put_idle_away(self) -> None:
        """Store what idle slots hold.  Where all slots share their cells, what is stored is cleared: attention pays for each cell."""
        if not self.is_on or not self._limits.cache_idle_slots:
            return
        for slot in self._pool.idle():
            if slot.n and self._store(slot) and self._limits.shares_cells:
                slot.put_away = replace(slot.held, tokens=slot.tokens.copy())
                self._rewinding.clear(slot)

    def recall(self, slot: Slot) -> None:
        """Let an idle slot hold again what was put away, if the cache still has it."""
        if slot.put_away is not None and (entry := self.cache.take(slot.put_away)) is not None:
            self._load(slot, entry)
        slot.put_away = None

    def _clear_idle(self) -> None:
        for slot in self._pool.idle():
            if slot.n:
                self._store(slot)
                self._rewinding.clear(slot)

    def _store(self, slot: Slot) -> bool:
        """Whether the cache has it now."""
        held = slot.held
        if held.adapters is None:  # nobody could use it
            return False
        if self.cache.has(held):
            return True
        checkpoints = within(slot.checkpoints, slot.n)
        size_bytes = self._decoder.state_size(slot.id) + held.tokens.nbytes + sum(entry.state.nbytes for entry in checkpoints)
        if not self.cache.make_room(held, size_bytes):
            log.warning("slot %d: %d tokens take %d MiB, more than --cache-ram; they are not kept", slot.id, slot.n, size_bytes >> 20)
            return False
        state = self._copy(slot)
        if state is None:
            return False
        self.cache.add(Entry(replace(held, tokens=held.tokens.copy()), state, checkpoints))
        return True

    def _copy(self, slot: Slot) -> State | None:
        """The slot's state; older entries go while the host has no memory for it."""
        state = self._decoder.save_state(slot.id, partial=False)
        while state is None and self.cache.drop_oldest():
            state = self._decoder.save_state(slot.id, partial=False)
        return state

    def _load(self, slot: Slot, entry: Entry) -> None:
        self._rewinding.clear(slot)
        loaded = self._decoder.load_state(slot.id, entry.state, partial=False)
        if not loaded and self._limits.shares_cells:  # perhaps idle slots have the cells
            self._clear_idle()
            loaded = self._decoder.load_state(slot.id, entry.state, partial=False)
        if loaded:
            slot.fill(entry.held.tokens, entry.held.spans)
            slot.adapters = entry.held.adapters
            slot.checkpoints = entry.checkpoints
        else:
            log.warning("slot %d: a cached prompt of %d tokens cannot be put back", slot.id, len(entry.held.tokens))
            self._rewinding.clear(slot)
