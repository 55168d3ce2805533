"""How requests share slots and batches: frozen values that cross between rooms.  Imports nothing of lsm.

Names and defaults follow llama-server's flags (requirements C.2, C.3); what a value does is said where the flag stands, in
`lsm.config.batching`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    n_ctx_per_slot: int = 0  # 0: as many as there are
    context_shift: bool = False
    cont_batching: bool = True
    slot_prompt_similarity: float = 0.1
