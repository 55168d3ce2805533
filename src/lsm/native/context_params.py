"""Settings of a context in llama.cpp's own parameters, for a context that is made and for one that is only measured."""

from __future__ import annotations

from typing import Any, Required, TypedDict

from lsm.errors import ConfigError
from lsm.native.library import lib
from lsm.native.params import lookup, set_computing
from lsm.tuning import AS_THE_MODEL_SAYS, Computing

__all__ = ["CACHE_TYPES", "ContextSettings", "context_params"]

CACHE_TYPES = {
    "f32": lib.GGML_TYPE_F32,
    "f16": lib.GGML_TYPE_F16,
    "bf16": lib.GGML_TYPE_BF16,
    "q8_0": lib.GGML_TYPE_Q8_0,
    "q4_0": lib.GGML_TYPE_Q4_0,
    "q4_1": lib.GGML_TYPE_Q4_1,
    "iq4_nl": lib.GGML_TYPE_IQ4_NL,
    "q5_0": lib.GGML_TYPE_Q5_0,
    "q5_1": lib.GGML_TYPE_Q5_1,
}
FLASH_ATTENTION = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


class ContextSettings(TypedDict, total=False):
    """n_ctx: positions for all sequences together; 0: as many as the model was trained for.
    kv_unified: one cache that all sequences share, rather than an equal part for each.
    flash_attn: auto, on or off.  type_k, type_v: a key of CACHE_TYPES.
    n_outputs_max: rows with logits in one batch; 0: one for each sequence.  Each costs n_vocab floats of compute memory, so llama.cpp's
        own default of n_batch costs half a gigabyte where the vocabulary is large.  It is n_batch for embeddings, and with an encoder.
    n_outputs_max_per_seq: of these, rows of one sequence where the device samples, 0: all; a batch with more has code -1.
    computing: the rest.
    """

    n_ctx: Required[int]
    n_seq_max: Required[int]
    kv_unified: Required[bool]
    threads: Required[int]
    threads_batch: Required[int]
    n_batch: int
    n_ubatch: int
    flash_attn: str
    type_k: str
    type_v: str
    swa_full: bool
    n_outputs_max: int
    n_outputs_max_per_seq: int
    computing: Computing


def context_params(
    *,
    has_encoder: bool,
    pooled_by_itself: bool,
    n_ctx: int,
    n_seq_max: int,
    kv_unified: bool,
    threads: int,
    threads_batch: int,
    n_batch: int = 2048,
    n_ubatch: int = 512,
    flash_attn: str = "auto",
    type_k: str = "f16",
    type_v: str = "f16",
    swa_full: bool = False,
    n_outputs_max: int = 0,
    n_outputs_max_per_seq: int = 0,
    computing: Computing = AS_THE_MODEL_SAYS,
) -> Any:
    """llama_context_params for a model of which it is known whether it has an encoder, and a pooling of its own.

    Raises ConfigError: a value that llama.cpp does not know.
    """
    is_pooled = pooled_by_itself if computing.pooling_wanted is None else computing.pooling_wanted != "none"
    if computing.embeds and is_pooled and min(n_ubatch, n_ctx or n_ubatch) % n_seq_max:
        raise ConfigError(f"n_ubatch: for pooled embeddings it must be a multiple of the {n_seq_max} sequences")  # or it aborts
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = n_ctx, n_batch, n_ubatch, n_seq_max
    params.n_threads, params.n_threads_batch = threads, threads_batch
    params.flash_attn_type = lookup(FLASH_ATTENTION, flash_attn, "flash_attn")
    params.type_k = lookup(CACHE_TYPES, type_k, "type_k")
    params.type_v = lookup(CACHE_TYPES, type_v, "type_v")
    params.kv_unified, params.swa_full = kv_unified, swa_full
    set_computing(params, computing)
    params.no_perf = True
    params.n_outputs_max = n_batch if computing.embeds or has_encoder else max(n_outputs_max, n_seq_max)
    params.n_outputs_max_per_seq = n_outputs_max_per_seq
    return params
