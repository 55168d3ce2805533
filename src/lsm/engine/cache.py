"""What the slots keep in the KV cache from one request to the next, and what is given up for it."""

from __future__ import annotations

from typing import Any

from lsm.engine.adapting import Adapting
from lsm.engine.limits import Limits
from lsm.engine.moving import Moving
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder
from lsm.engine.prompt import whole_prefix
from lsm.engine.request import Request
from lsm.engine.rewinding import Rewinding
from lsm.engine.slot import Slot
from lsm.engine.stashing import Stashing


class Cache:
    def __init__(self, pool: Pool, decoder: Decoder, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self.rewinding = Rewinding(decoder, limits)
        self.stashing = Stashing(pool, decoder, self.rewinding, limits)
        self.moving = Moving(pool, decoder, self.rewinding, limits)
        self.adapting = Adapting(decoder)

    def keep_prefix(self, slot: Slot, request: Request) -> None:
        """Keep what the slot has of the request's prompt; the rest goes."""
        request.adapters = self.adapting.wanted(request.options)
        self.stashing.exchange(slot, request)
        n_common = n = 0
        if request.options.cache_prompt and slot.n:
            n_common = self.moving.move_chunks(slot, request, slot.held.shared(request.held))
            # The last token must be decoded, so that there are logits: if it is of a chunk, all of that.
            n = whole_prefix(min(n_common, len(request.prompt) - 1), slot.spans, request.spans)
        self.rewinding.match(slot, n, n_common)
        slot.adapters = request.adapters
        request.cache_n = slot.n
        self._pool.tally.prompt_tokens_cached += slot.n

    def kept(self) -> dict[str, Any]:
        """For `Counters`.  May be read by another thread."""
        cache = self.stashing.cache
        holders = (*self._pool.slots, *cache)
        snapshots = {id(entry): entry.state.nbytes for holder in holders for entry in holder.checkpoints}
        return {
            "checkpoints": len(snapshots),
            "checkpoint_bytes": sum(snapshots.values()),
            "prompt_cache_entries": len(cache),
            "prompt_cache_tokens": cache.n_tokens,
            "prompt_cache_bytes": cache.size_bytes,
            "prompt_cache_hits": cache.hits,
        }

    def clear(self, slot: Slot) -> None:
        """Only the book-keeping of the sequence is touched, so this works while the memory is released, too."""
        self.rewinding.clear(slot)

    def clear_idle(self) -> bool:
        """Make room by clearing the idle slot that was not used for the longest time; whether there was one."""
        idle = [slot for slot in self._pool.idle() if slot.n] if self._limits.shares_cells else []
        if idle:
            self.clear(min(idle, key=lambda slot: slot.last_used))
        return bool(idle)
