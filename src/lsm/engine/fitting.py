"""The settings of a model, changed so that it fits into the memory that is free now (`--fit`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lsm.engine.config import EngineConfig
from lsm.engine.fit import fit
from lsm.engine.fit_plan import Bounds, Measured, Plan, Use
from lsm.engine.gguf_header import GgufHeader
from lsm.errors import LsmError
from lsm.native import measure as native
from lsm.native.context_params import ContextSettings
from lsm.native.model import split_files
from lsm.tuning import Loading

MIB = 1 << 20
COMPUTE_ALLOWANCE_BYTES = 1 << 30  # beside weights and KV cache, where nothing is measured
CELL_BYTES = 2 * 4  # K and V in the widest type
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

log = logging.getLogger("lsm.engine")

MeasureFile = Callable[[EngineConfig, Plan], Measured]


def context_settings(config: EngineConfig, n_slots: int) -> ContextSettings:
    """Of the context that `config` means, for that many sequences."""
    return ContextSettings(
        n_ctx=config.n_ctx,
        n_seq_max=n_slots,
        kv_unified=config.shares_cells,
        threads=config.n_threads,
        threads_batch=config.n_threads_batch,
        n_batch=max(config.n_batch, n_slots),
        n_ubatch=_n_ubatch(config, n_slots),
        flash_attn=config.flash_attn,
        type_k=config.cache_type_k,
        type_v=config.cache_type_v,
        swa_full=config.swa_full,
        computing=config.computing,
    )


def fit_config(config: EngineConfig, header: GgufHeader, measure: MeasureFile | None = None) -> EngineConfig:
    """`config`, with a context that memory has room for where none was chosen.  What cannot be measured stays as it is: the load will tell.

    With the KV cache in parts each slot gets a whole context, if there is room.
    """
    if not config.loading.fit or config.n_ctx:
        return config
    n_streams = 1 if config.shares_cells else config.n_slots
    n_ctx_train = _integer(header, "context_length")
    whole = replace(config, n_ctx=n_ctx_train * n_streams if n_streams > 1 else 0)
    limit_bytes = memory_limit_bytes()
    if measure is None and _is_small(whole, header, n_streams, limit_bytes):
        return whole
    bounds = Bounds(
        n_ctx_min=config.loading.fit_ctx,
        n_streams=n_streams,
        margins=tuple(mib * MIB for mib in config.loading.fit_target_mib),
    )
    try:
        fitted = fit(bounds, lambda plan: (measure or measure_file)(config, plan))
    except LsmError as error:
        log.debug("memory was not fitted: %s", error.message)
        return config
    if fitted.missing:
        log.warning("%s does not fit into memory, and is tried all the same: %s", config.path.name, fitted.missing)
    if 0 < fitted.plan.n_ctx < n_ctx_train * n_streams:
        log.info(
            "a context of %d tokens instead of %d leaves %d MiB of memory free (--fit-target; --ctx-size chooses another)",
            fitted.plan.n_ctx, n_ctx_train * n_streams, config.loading.fit_target_mib[0],
        )  # fmt: skip
    return replace(config, n_ctx=fitted.plan.n_ctx, loading=with_placements(config.loading, fitted.plan))


def measure_file(config: EngineConfig, plan: Plan) -> Measured:
    """What the plan takes, by a load in which nothing is allocated.  Raises `LsmError`."""
    planned = replace(config, n_ctx=plan.n_ctx, loading=with_placements(config.loading, plan))
    sizes = native.measure(config.path, planned.loading, **context_settings(planned, config.n_slots))
    host = _use(sizes.host)
    limit_bytes = memory_limit_bytes()
    return Measured(
        devices=tuple(map(_use, sizes.devices)),
        host=replace(host, total=min(host.total, limit_bytes or host.total)),
        n_layer=sizes.n_layer,
        n_ctx_train=sizes.n_ctx_train,
        n_expert=sizes.n_expert,
    )


def with_placements(loading: Loading, plan: Plan) -> Loading:
    return replace(loading, override_tensor=(*loading.override_tensor, *plan.placements)) if plan.placements else loading


def memory_limit_bytes() -> int:
    """Of this process's control group; 0: none."""
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() and int(text) < 1 << 60 else 0
    return 0


def _is_small(config: EngineConfig, header: GgufHeader, n_streams: int, limit_bytes: int) -> bool:
    """Whether the model fits by so much that nothing need be measured: that takes as long as reading its vocabulary."""
    head = max(_integer(header, "attention.key_length"), _integer(header, "attention.value_length"))
    width = max(_integer(header, "embedding_length"), _integer(header, "attention.head_count") * head)
    n_ctx = _integer(header, "context_length") * n_streams
    if not (width and n_ctx):
        return False
    kv_bytes = CELL_BYTES * width * n_ctx * _integer(header, "block_count")
    file_bytes = sum(path.stat().st_size for path in split_files(config.path))
    total = native.host_memory_bytes()
    room = min(total, limit_bytes or total) - config.loading.fit_target_mib[0] * MIB
    return file_bytes + kv_bytes + COMPUTE_ALLOWANCE_BYTES <= room


def _integer(header: GgufHeader, key: str) -> int:
    """The largest, of a key that may have one value for each layer; 0 if there is none."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    values = value if isinstance(value, tuple) else (value,)
    return max((one for one in values if type(one) is int), default=0)


def _use(use: native.MemoryUse) -> Use:
    return Use(total=use.total, free=use.free, model=use.model, context=use.context, compute=use.compute, buffer=use.buffer)


def _n_ubatch(config: EngineConfig, n_slots: int) -> int:
    """For embeddings llama.cpp plans a computation in which every slot has an equal part."""
    return max(config.n_ubatch // n_slots, 1) * n_slots if config.computing.embeds else config.n_ubatch
