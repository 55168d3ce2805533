"""The part of `ScriptedHost` that saves slots: to nowhere, by name and number of tokens."""

from __future__ import annotations

from typing import Any

from lsm.errors import InvalidRequest
from lsm.values import SlotFile


class ScriptedSlotFiles:
    slot_files: dict[str, int]
    scripted: Any

    async def save_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        n_tokens = len(self.scripted(model).cached)
        self.slot_files[filename] = n_tokens
        return SlotFile(id_slot=slot, filename=filename, n_tokens=n_tokens, n_bytes=4 * n_tokens, elapsed_ms=1.5)

    async def restore_slot(self, model: str, slot: int, filename: str) -> SlotFile:
        if filename not in self.slot_files:
            raise InvalidRequest(f"Unable to restore slot: '{filename}': No such file or directory")
        n_tokens = self.slot_files[filename]
        return SlotFile(id_slot=slot, filename=filename, n_tokens=n_tokens, n_bytes=4 * n_tokens, elapsed_ms=2.5, degraded="so it is")

    async def erase_slot(self, model: str, slot: int) -> int:
        return len(self.scripted(model).cached)
