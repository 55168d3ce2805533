"""What a copy costs at the least: pinned host memory to the device and back with the runtime's own calls, and how much is in use."""

from __future__ import annotations

import ctypes
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def runtime() -> ctypes.CDLL | None:
    """The CUDA runtime that this process has loaded with lsm; None in a build without CUDA."""
    found = re.search(r"\S*/libcudart\S*", Path("/proc/self/maps").read_text())
    return ctypes.CDLL(found[0]) if found else None


def used_bytes() -> int:
    """Of the device's memory, by everybody; 0 without a GPU."""
    cuda = runtime()
    if cuda is None:
        return 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _check(cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
    return total.value - free.value


def copy_seconds(n_bytes: int) -> tuple[float, float]:
    """Seconds, medians of five: `n_bytes` to the device, and back.  Without a GPU: from memory to memory."""
    cuda = runtime()
    if cuda is None:
        source, target = np.ones(n_bytes, np.uint8), np.ones(n_bytes, np.uint8)
        return _median(lambda: np.copyto(target, source)), _median(lambda: np.copyto(source, target))
    host, device, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(n_bytes)
    _check(cuda.cudaHostAlloc(ctypes.byref(host), size, 0))
    _check(cuda.cudaMalloc(ctypes.byref(device), size))
    try:
        to_device = _median(lambda: _check(cuda.cudaMemcpy(device, host, size, HOST_TO_DEVICE)))
        return to_device, _median(lambda: _check(cuda.cudaMemcpy(host, device, size, DEVICE_TO_HOST)))
    finally:
        cuda.cudaFree(device)
        cuda.cudaFreeHost(host)


def _median(act: Callable[[], object], n: int = 5) -> float:
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _check(error: int) -> None:
    if error:
        raise SystemExit(f"CUDA error {error}")
