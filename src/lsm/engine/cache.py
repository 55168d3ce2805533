"""What the slots keep in the KV cache from one request to the next, and what is given up for it.

Only the book-keeping of sequences is touched here, so all of this works while the memory is released, too.
"""

from __future__ import annotations

from lsm.engine.limits import Limits
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder
from lsm.engine.prefix import common_prefix, reusable_prefix
from lsm.engine.prompt import position, whole_prefix
from lsm.engine.request import Request
from lsm.engine.slot import Slot


class Cache:
    def __init__(self, pool: Pool, decoder: Decoder, limits: Limits) -> None:
        self._pool = pool
        self._decoder = decoder
        self._limits = limits

    def keep_prefix(self, request: Request, slot: Slot) -> None:
        """Keep what the slot has of the request's prompt; the rest goes."""
        n = 0
        if request.options.cache_prompt and slot.n:
            n_common = common_prefix(slot.tokens, request.prompt)
            n_common = whole_prefix(n_common, slot.spans, request.spans)
            n = reusable_prefix(n_common, len(request.prompt), self._decoder.seq_pos_min(slot.id), self._limits.n_swa)
            n = whole_prefix(n, slot.spans, request.spans)  # the last token must be decoded: if it is of a chunk, all of that
        if n < slot.n and not (n and self._decoder.seq_rm(slot.id, position(n, slot.spans), -1)):
            self.clear(slot)  # nothing in common, or a memory that cannot forget a part: correct beats fast
        slot.keep(min(n, slot.n))
        request.cache_n = slot.n
        self._pool.tally.prompt_tokens_cached += slot.n

    def clear(self, slot: Slot) -> None:
        removed = self._decoder.seq_rm(slot.id, 0, -1)
        assert removed, "a whole sequence can always be removed"
        slot.keep(0)

    def clear_idle(self) -> bool:
        """Make room by clearing the idle slot that was not used for the longest time; whether there was one."""
        idle = [slot for slot in self._pool.idle() if slot.n] if self._limits.shares_cells else []
        if idle:
            self.clear(min(idle, key=lambda slot: slot.last_used))
        return bool(idle)
