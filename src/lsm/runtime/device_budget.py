"""`--vram-budget`, in bytes."""

from __future__ import annotations

from typing import Any

from lsm.errors import ConfigError
from lsm.native.library import devices
from lsm.runtime.room_effects import Budget

# Of a device that is divided by measure: what driver, graphs and other programs take beside the buffers that we count.
MARGIN_MIN_BYTES, MARGIN_SHARE = 512 * 2**20, 0.05


def device_budget(setting: int | str | None) -> Budget:
    """None: no budget.  A number of bytes.  "auto": the first GPU's memory, less a margin.

    Raises ConfigError: auto without a GPU.  A computer's memory belongs to all its programs; how much of it models may have is for a
    person to say.
    """
    if setting is None:
        return Budget()
    gpu = next((device for device in devices() if device["type"] == "gpu" and device["memory_total_bytes"]), None)
    if setting == "auto":
        if gpu is None:
            raise ConfigError("--vram-budget auto: there is no GPU here; name a size, for example --vram-budget 6GiB")
        return Budget(auto_size_bytes(gpu["memory_total_bytes"]), _free_bytes(gpu["name"]))
    assert isinstance(setting, int)
    return Budget(setting, _free_bytes(gpu["name"]) if gpu else lambda: None)


def auto_size_bytes(total_bytes: int) -> int:
    """The device's memory, less a twentieth, and less half a GiB at least."""
    return max(0, total_bytes - max(MARGIN_MIN_BYTES, int(MARGIN_SHARE * total_bytes)))


def _free_bytes(name: str) -> Any:
    return lambda: next((device["memory_free_bytes"] for device in devices() if device["name"] == name), None)
