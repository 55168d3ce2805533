"""What the scheduler has to keep within."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    n_slots: int
    n_ctx_slot: int  # prompt and answer of one slot together
    n_batch: int  # most tokens in one step
    n_swa: int  # tokens that sliding layers look back; 0: none slide
    shares_cells: bool  # one KV cache for all slots: an idle one can be cleared to make room
    similarity_min: float = 0.1
