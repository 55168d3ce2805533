"""What is kept of prompts beside the slots: frozen values that cross between rooms.  Imports nothing of lsm.

Names and defaults follow llama-server's flags (requirements C.3); what a value does is said where the flag stands, in `lsm.config.keeping`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    n_ctx_checkpoints: int = 32  # 0: none
    checkpoint_min_step: int = 8192
    cache_ram_mib: int = 8192  # -1: no limit; 0: no cache
    cache_idle_slots: bool = True
    slot_save_path: Path | None = None  # None: slots are not saved to files

    @property
    def cache_limit_bytes(self) -> int | None:
        """None: no limit."""
        return None if self.cache_ram_mib < 0 else self.cache_ram_mib << 20
