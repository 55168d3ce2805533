"""What the settings mean in llama.cpp's own parameters."""

from __future__ import annotations

from typing import Any

from lsm.errors import ConfigError
from lsm.native.library import ffi, lib
from lsm.tuning import POOLINGS, Computing, Loading

__all__ = ["POOLING_NAMES", "lookup", "set_computing", "set_loading"]

LOAD_MODES = {
    # Mapped weights of the CPU are page cache that a release cannot give back, so nothing is mapped unless somebody says so.
    "auto": lib.LLAMA_LOAD_MODE_NONE,
    "none": lib.LLAMA_LOAD_MODE_NONE,
    "mmap": lib.LLAMA_LOAD_MODE_MMAP,
    "dio": lib.LLAMA_LOAD_MODE_DIRECT_IO,
}
LAZY_MODES = {"on": lib.LLAMA_LAZY_MODE_ON, "auto": lib.LLAMA_LAZY_MODE_AUTO, "off": lib.LLAMA_LAZY_MODE_OFF}
POOLING_TYPES = dict(
    zip(
        POOLINGS,
        (
            lib.LLAMA_POOLING_TYPE_NONE,
            lib.LLAMA_POOLING_TYPE_MEAN,
            lib.LLAMA_POOLING_TYPE_CLS,
            lib.LLAMA_POOLING_TYPE_LAST,
            lib.LLAMA_POOLING_TYPE_RANK,
        ),
        strict=True,
    )
)
POOLING_NAMES = {number: name for name, number in POOLING_TYPES.items()}
ROPE_SCALINGS = {
    "none": lib.LLAMA_ROPE_SCALING_TYPE_NONE,
    "linear": lib.LLAMA_ROPE_SCALING_TYPE_LINEAR,
    "yarn": lib.LLAMA_ROPE_SCALING_TYPE_YARN,
}


def set_loading(params: Any, loading: Loading) -> list[Any]:
    """Write `loading` into llama_model_params; what is returned must live as long as they are used.

    Raises ConfigError: a mode or a buffer type that does not exist here.
    """
    params.load_mode = lookup(LOAD_MODES, loading.load_mode, "load_mode")
    params.lazy_mode = lookup(LAZY_MODES, loading.lazy_mode, "lazy_mode")
    params.use_extra_bufts, params.no_host, params.check_tensors = loading.repack, loading.no_host, loading.check_tensors
    placements, patterns = _placements(loading.placements)
    overrides = _kv_overrides(loading.override_kv)
    params.tensor_buft_overrides, params.kv_overrides = placements, overrides
    return [placements, patterns, overrides]


def set_computing(params: Any, computing: Computing) -> None:
    """Write `computing` into llama_context_params.  Raises ConfigError: a name that does not exist."""
    params.embeddings = computing.embeds
    if computing.pooling_wanted is not None:
        params.pooling_type = lookup(POOLING_TYPES, computing.pooling_wanted, "pooling")
    params.offload_kqv, params.op_offload = computing.kv_offload, computing.op_offload
    if computing.rope_scaling is not None:
        params.rope_scaling_type = lookup(ROPE_SCALINGS, computing.rope_scaling, "rope_scaling")
    params.rope_freq_base, params.rope_freq_scale = computing.rope_freq_base, computing.freq_scale
    params.yarn_orig_ctx = computing.yarn_orig_ctx
    params.yarn_ext_factor, params.yarn_attn_factor = computing.yarn_ext_factor, computing.yarn_attn_factor
    params.yarn_beta_slow, params.yarn_beta_fast = computing.yarn_beta_slow, computing.yarn_beta_fast


def lookup(table: dict[str, int], value: str, field: str) -> int:
    if value not in table:
        raise ConfigError(f"{field}: '{value}' is not one of {', '.join(table)}")
    return table[value]


def _placements(pairs: tuple[tuple[str, str], ...]) -> tuple[Any, list[Any]]:
    """The array, which an empty pattern ends, and the texts it points to."""
    if not pairs:
        return ffi.NULL, []
    room = lib.llama_max_tensor_buft_overrides() - 1
    if len(pairs) > room:
        raise ConfigError(f"{len(pairs)} rules say where tensors go (--override-tensor, --n-cpu-moe, ..): llama.cpp takes {room}")
    known = _buffer_types()
    array = ffi.new("struct llama_model_tensor_buft_override[]", len(pairs) + 1)
    patterns = [ffi.new("char[]", pattern.encode()) for pattern, _ in pairs]
    for entry, pattern, (_, name) in zip(array, patterns, pairs, strict=False):
        entry.pattern, entry.buft = pattern, lookup(known, name, "--override-tensor")
    return array, patterns


def _buffer_types() -> dict[str, Any]:
    """Each device's own, by ggml's name."""
    types = (lib.ggml_backend_dev_buffer_type(lib.ggml_backend_dev_get(i)) for i in range(lib.ggml_backend_dev_count()))
    return {ffi.string(lib.ggml_backend_buft_name(kind)).decode(): kind for kind in types if kind}


def _kv_overrides(pairs: tuple[tuple[str, bool | int | float | str], ...]) -> Any:
    """An array that an empty key ends."""
    if not pairs:
        return ffi.NULL
    array = ffi.new("struct llama_model_kv_override[]", len(pairs) + 1)
    for entry, (key, value) in zip(array, pairs, strict=False):
        entry.key = key.encode()
        if isinstance(value, bool):
            entry.tag, entry.val_bool = lib.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
        elif isinstance(value, int):
            entry.tag, entry.val_i64 = lib.LLAMA_KV_OVERRIDE_TYPE_INT, value
        elif isinstance(value, float):
            entry.tag, entry.val_f64 = lib.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
        else:
            entry.tag, entry.val_str = lib.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()
    return array
