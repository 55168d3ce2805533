"""How far back a context's memory can go by itself: asked of the memory, because no function of llama.cpp says it."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from lsm.native.context import Context

__all__ = ["Rollback", "probe_rollback"]


class Rollback(StrEnum):
    """What can be removed from the end of a sequence."""

    NO = "no"  # there is no memory, or nothing can be decoded into it without an encoder
    PART = "part"  # any number of tokens
    FULL = "full"  # nothing, or everything
    BOUNDED = "bounded"  # a few tokens, of which recurrent states are kept


def probe_rollback(context: Context) -> Rollback:
    """Decode two tokens and try to remove the second.  The memory must be resident, and is empty afterwards."""
    if not context.has_memory or context.has_encoder:
        return Rollback.NO
    if context.n_rs_seq > 0:
        return Rollback.BOUNDED
    context.memory_clear()
    zero, on = np.zeros(1, np.int32), np.ones(1, np.int8)
    try:
        for pos in range(2):
            if context.step(zero, np.full(1, pos, np.int32), zero, on, zero[:0]).code != 0:
                return Rollback.NO
        return Rollback.PART if context.seq_rm(0, 1) else Rollback.FULL
    finally:
        context.memory_clear()
        context.synchronize()
