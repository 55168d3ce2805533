"""Tokens that move within the cache: a full context that drops its older ones, chunks that a prompt has elsewhere, copies for choices.

Only the book-keeping of sequences is touched here, so all of this works while the memory is released; the memory itself follows with the
next batch, or when a state is read or written before (`lsm.native.states`).
"""

from __future__ import annotations

from lsm.engine.limits import Limits
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder
from lsm.engine.prefix import movable_chunks
from lsm.engine.request import Request
from lsm.engine.rewinding import Rewinding
from lsm.engine.shift import shift_range
from lsm.engine.slot import Slot


class Moving:
    def __init__(self, pool: Pool, decoder: Decoder, rewinding: Rewinding, limits: Limits) -> None:
        self._pool = pool
        self._decoder = decoder
        self._rewinding = rewinding
        self._limits = limits

    def copy(self, source: Slot, target: Slot) -> None:
        """`target` holds what `source` holds; where all slots have one cache, in the same cells."""
        self._rewinding.clear(target)
        self._decoder.seq_cp(source.id, target.id)
        target.fill(source.tokens, source.spans)
        target.adapters, target.checkpoints = source.adapters, source.checkpoints
        if self._limits.shares_cells:
            sharers = source.sharers | {target.id}
            for id in sharers:
                self._pool.slots[id].sharers = sharers

    def move_chunks(self, slot: Slot, request: Request, n_common: int) -> int:
        """Close the gaps that the prompt does not have; how many tokens the slot then has of it."""
        n_min = request.options.n_cache_reuse
        is_other = slot.adapters is None or slot.adapters != request.adapters
        if not n_min or is_other or request.spans or n_common in (slot.n, len(request.prompt)) or not self.may_shift(slot):
            return n_common
        chunks = movable_chunks(slot.tokens, request.prompt, n_common, n_min)
        if not chunks:
            return n_common
        self._begin(slot, n_common)
        for start, to, n in chunks:
            self._decoder.seq_rm(slot.id, to, start)
            self._decoder.seq_add(slot.id, start, start + n, to - start)
            slot.move(start, n, to)
        n_reused = n_common + sum(n for _, _, n in chunks)
        self._decoder.seq_rm(slot.id, n_reused, -1)
        slot.keep(n_reused)
        return n_reused

    def may_shift(self, slot: Slot) -> bool:
        """Whether this slot's tokens can move to other positions: media cannot, and cells that a busy slot shares would move there, too."""
        others = slot.sharers - {slot.id}
        return self._limits.can_shift and not slot.spans and all(self._pool.slots[id].request is None for id in others)

    def can_shift_context(self, slot: Slot) -> bool:
        return self._limits.context_shift and self.may_shift(slot) and self._shift_range(slot)[1] > 0

    def shift(self, slot: Slot, request: Request) -> None:
        """Make room in a full slot: the tokens after those to keep leave, what follows moves up."""
        start, n = self._shift_range(slot)
        self._begin(slot, start)
        removed = self._decoder.seq_rm(slot.id, start, start + n)
        assert removed, "a memory that can shift can forget a part"
        self._decoder.seq_add(slot.id, start + n, slot.n, -n)
        slot.move(start + n, slot.n - start - n, start)
        slot.keep(slot.n - n)
        request.is_shifted = True

    def _begin(self, slot: Slot, n_kept: int) -> None:
        """What follows the first `n_kept` tokens moves: idle slots that share the cells forget them, snapshots of later places are void."""
        for id in slot.sharers - {slot.id}:
            self._rewinding.clear(self._pool.slots[id])
        self._rewinding.forget_beyond(slot, n_kept)

    def _shift_range(self, slot: Slot) -> tuple[int, int]:
        assert slot.request is not None
        options = slot.request.options
        n_keep = len(slot.request.prompt) if options.n_keep < 0 else options.n_keep
        return shift_range(slot.n, slot.n_ctx, n_keep + self._limits.adds_bos, options.n_discard)
