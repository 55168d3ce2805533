"""What a model and its context would take, without memory for them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from lsm.native.checks import check, message_buffer
from lsm.native.context_params import ContextSettings, context_params
from lsm.native.devices import set_placing
from lsm.native.library import ffi, lib, llama_log
from lsm.native.memory import install
from lsm.native.params import set_loading
from lsm.tuning import Loading, Placing

__all__ = ["MemoryUse", "Sizes", "free_memory_bytes", "host_memory_bytes", "measure", "placements_max"]


class MemoryUse(NamedTuple):
    """Bytes of one device.  `buffer`: ggml's name of its buffers."""

    total: int
    free: int
    model: int
    context: int
    compute: int
    buffer: str


class Sizes(NamedTuple):
    """devices: those that hold the model beside the host.  n_layer: without the output layer."""

    devices: tuple[MemoryUse, ...]
    host: MemoryUse
    n_layer: int
    n_ctx_train: int
    n_expert: int


def measure(path: Path, loading: Loading, placing: Placing, **settings: Unpack[ContextSettings]) -> Sizes:
    """Load the file without its weights, and make a context without memory: as long as reading the vocabulary takes.

    Raises:
        ModelFileError: llama.cpp cannot load the file.
        ServerError: it refuses the settings.
        ConfigError: they name what does not exist here.
    """
    install()
    model_params = ffi.new("struct llama_model_params *", lib.llama_model_default_params())
    kept = set_loading(model_params, loading) + set_placing(model_params, placing)
    context = ffi.new("struct llama_context_params *", context_params(has_encoder=False, pooled_by_itself=False, **settings))
    n_max = max(lib.llama_max_devices(), 1)
    devices, host = ffi.new("struct lsm_memory_use[]", n_max), ffi.new("struct lsm_memory_use *")
    n_devices, facts, err = ffi.new("int *"), ffi.new("int32_t[3]"), message_buffer()
    with _quietly():
        code = lib.lsm_fit_measure(os.fsencode(path), model_params, context, n_max, devices, n_devices, host, facts, err, len(err))
    check(code, err)
    del kept
    return Sizes(tuple(_use(devices[i]) for i in range(n_devices[0])), _use(host[0]), *facts)


def host_memory_bytes() -> int:
    """All of this machine's memory."""
    return _memory(lib.ggml_backend_dev_by_type(lib.GGML_BACKEND_DEVICE_TYPE_CPU))[1]


def free_memory_bytes(device: str) -> int:
    """Of the device of this name, which must exist."""
    return _memory(lib.ggml_backend_dev_by_name(device.encode()))[0]


def placements_max() -> int:
    """Rules of placement that llama.cpp takes."""
    return int(lib.llama_max_tensor_buft_overrides()) - 1


def _memory(device: Any) -> tuple[int, int]:
    """(free, total) in bytes."""
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    lib.ggml_backend_dev_memory(device, free, total)
    return int(free[0]), int(total[0])


def _use(use: Any) -> MemoryUse:
    buffer = ffi.string(use.buffer).decode()
    return MemoryUse(use.total_bytes, use.free_bytes, use.model_bytes, use.context_bytes, use.compute_bytes, buffer)


@contextmanager
def _quietly() -> Iterator[None]:
    """llama.cpp tells of a load that is none: of this thread only errors are logged."""
    thread = threading.get_ident()

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno >= logging.ERROR

    llama_log.addFilter(is_wanted)
    try:
        yield
    finally:
        llama_log.removeFilter(is_wanted)
