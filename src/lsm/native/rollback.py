"""What kind of memory a context has: asked of the memory itself, because no function of llama.cpp says it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from lsm.native.context import Context

__all__ = ["Probed", "Rollback", "probe_memory"]

N_TOKENS = 2


class Rollback(StrEnum):
    """What can be removed from the end of a sequence."""

    NO = "no"  # there is no memory, or nothing can be decoded into it without an encoder
    PART = "part"  # any number of tokens
    FULL = "full"  # nothing, or everything
    BOUNDED = "bounded"  # a few tokens, of which recurrent states are kept


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """state: (n,) uint8, of a sequence of N_TOKENS tokens; None: there was no such thing."""

    rollback: Rollback
    state: NDArray[np.uint8] | None = None


def probe_memory(context: Context) -> Probed:
    """Decode two tokens and try to remove the second.  The memory must be resident, and is empty afterwards."""
    if not context.has_memory or context.has_encoder:
        return Probed(Rollback.NO)
    context.memory_clear()
    zero, on = np.zeros(1, np.int32), np.ones(1, np.int8)
    try:
        for pos in range(N_TOKENS):
            if context.step(zero, np.full(1, pos, np.int32), zero, on, zero[:0]).code != 0:
                return Probed(Rollback.NO)
        state = context.sequence_state(0)
        if context.n_rs_seq > 0:
            return Probed(Rollback.BOUNDED, state)
        return Probed(Rollback.PART if context.seq_rm(0, 1) else Rollback.FULL, state)
    finally:
        context.memory_clear()
        context.synchronize()
