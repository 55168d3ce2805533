"""How many positions there are: in the cache, and in one slot.  Pure."""

from __future__ import annotations


def pool_size(n_ctx: int, n_slots: int, per_slot: int) -> int:
    """Positions to ask for, for all slots together (0: as many as the model was trained for): `n_ctx`, or room for `per_slot` in each."""
    return n_ctx or n_slots * per_slot


def slot_size(n_ctx_seq: int, per_slot: int, n_ctx_train: int) -> int:
    """Positions that one slot may use: of those it could reach (`n_ctx_seq`) at most `per_slot` (0: any), and none beyond the training
    (0, or negative in a broken file: not known).

    Where slots share one cache, the sum over them may be larger than the cache: it is filled first come, first served.
    """
    return min(n for n in (n_ctx_seq, per_slot, n_ctx_train) if n > 0)
