"""The scales of LoRA adapters, as somebody asks for them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lsm.errors import InvalidRequest
from lsm.values import FLOAT32_MAX, AdapterInfo


def with_scales(adapters: tuple[AdapterInfo, ...], scales: Mapping[int, float]) -> tuple[AdapterInfo, ...]:
    """Those that are not named act no longer.  Raises InvalidRequest."""
    for id, scale in scales.items():
        if not 0 <= id < len(adapters):
            there = f"there are 0 to {len(adapters) - 1}" if adapters else "this model has none: load some with --lora"
            raise InvalidRequest(f"{id} is no LoRA adapter of this model; {there}", "id")
        if not abs(scale) <= FLOAT32_MAX:
            raise InvalidRequest("must be a finite number of single precision", "scale")
    return tuple(replace(adapter, scale=float(scales.get(adapter.id, 0.0))) for adapter in adapters)
