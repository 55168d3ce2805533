"""How much device memory a model will take, before it takes any."""

from __future__ import annotations

from lsm.native.checks import check, message_buffer
from lsm.native.context import Context
from lsm.native.library import ffi, lib
from lsm.native.memory import MemoryClass

__all__ = ["footprint"]


def footprint(context: Context) -> dict[str, int]:
    """Bytes that weights, KV cache and compute buffers will have on the device, by class.  `context` is one of `Model.outline`.

    They are those that `DeviceMemory.bytes` tells after a load with the same settings.
    """
    err, out = message_buffer(), ffi.new("uint64_t[3]")
    check(lib.lsm_measure(context.handle, out, err, len(err)), err)
    return dict(zip((MemoryClass.WEIGHTS.value, MemoryClass.KV.value, MemoryClass.COMPUTE.value), out, strict=True))
