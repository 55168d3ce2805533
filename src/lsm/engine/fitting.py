"""The settings of a model, changed so that it fits into the memory that is free now (`--fit`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lsm.engine.config import EngineConfig
from lsm.engine.fit import fit
from lsm.engine.fit_plan import Bounds, Fitted, Measured, Plan, Use
from lsm.engine.gguf_header import GgufHeader
from lsm.engine.speculation.draft_config import draft_config
from lsm.errors import LsmError
from lsm.native import measure as native
from lsm.native.context_params import ContextSettings
from lsm.native.devices import chosen_devices
from lsm.native.model import split_files

MIB = 1 << 20
COMPUTE_ALLOWANCE_BYTES = 1 << 30  # beside weights and KV cache, where nothing is measured
CELL_BYTES = 2 * 4  # K and V in the widest type
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

log = logging.getLogger("lsm.engine")

MeasureFile = Callable[[EngineConfig, Plan], Measured]


def context_settings(config: EngineConfig, n_slots: int) -> ContextSettings:
    """Of the context that `config` means, for that many sequences."""
    n_batch, n_outputs = max(config.n_batch, n_slots), 1 + config.speculating.n_draft_max
    return ContextSettings(
        n_ctx=config.n_ctx,
        n_seq_max=n_slots,
        kv_unified=config.shares_cells,
        threads=config.n_threads,
        threads_batch=config.n_threads_batch,
        n_batch=n_batch,
        n_ubatch=_n_ubatch(config, n_slots),
        flash_attn=config.flash_attn,
        type_k=config.cache_type_k,
        type_v=config.cache_type_v,
        swa_full=config.swa_full,
        n_outputs_max=min(n_slots * n_outputs, n_batch) if n_outputs > 1 else 0,
        n_outputs_max_per_seq=min(n_outputs, n_batch) if n_outputs > 1 else 0,
        computing=config.computing,
    )


def fit_config(config: EngineConfig, header: GgufHeader, measure: MeasureFile | None = None) -> EngineConfig:
    """`config`, with the context and the layers on devices that memory has room for, where these were not chosen.

    With the KV cache in parts each slot gets a whole context, if there is room.  What cannot be measured stays: the load will tell why.
    Raises `ConfigError`: a device that there is not.
    """
    devices = chosen_devices(config.placing)
    if not config.loading.fit or (config.n_ctx and not devices):
        return config
    n_streams = 1 if config.shares_cells else config.n_slots
    n_ctx_whole = config.n_ctx or _integer(header, "context_length") * n_streams
    margins = tuple(mib * MIB for mib in config.loading.fit_target_mib)
    drafts = config.speculating.draft_path is not None
    if measure is None and not drafts and _at_most_bytes(config, header, n_ctx_whole) <= _room_bytes(devices) - margins[0]:
        return replace(config, n_ctx=config.n_ctx or (n_ctx_whole if n_streams > 1 else 0))
    bounds = Bounds(
        n_ctx=config.n_ctx,
        n_ctx_min=config.loading.fit_ctx,
        n_streams=n_streams,
        margins=margins,
        fixed=_why_fixed(config),
        n_placements_max=native.placements_max(),
    )
    try:
        fitted = fit(bounds, lambda plan: (measure or measure_file)(config, plan), partial(measure_draft, config) if drafts else None)
    except LsmError as error:
        log.debug("memory was not fitted: %s", error.message)
        return config
    _tell(config, fitted, n_ctx_whole)
    return planned(config, fitted.plan)


def measure_file(config: EngineConfig, plan: Plan) -> Measured:
    """What the plan takes, by a load in which nothing is allocated.  Raises `LsmError`."""
    wanted = planned(config, plan)
    sizes = native.measure(config.path, wanted.loading, wanted.placing, **context_settings(wanted, config.n_slots))
    host = _use(sizes.host)
    return Measured(
        devices=tuple(map(_use, sizes.devices)),
        host=replace(host, total=min(host.total, memory_limit_bytes() or host.total)),
        n_layer=sizes.n_layer,
        n_ctx_train=sizes.n_ctx_train,
        n_expert=sizes.n_expert,
    )


def measure_draft(config: EngineConfig, n_ctx: int) -> list[Use]:
    """S23: what the draft model takes on each device of the model, then of the host.  Raises `LsmError`."""
    draft = draft_config(config, n_ctx)
    sizes = native.measure(draft.path, draft.loading, draft.placing, **context_settings(draft, config.n_slots))
    uses = dict(zip(chosen_devices(draft.placing), map(_use, sizes.devices), strict=False))
    nothing = Use(total=0, free=0)
    return [*(uses.get(name, nothing) for name in chosen_devices(config.placing)), _use(sizes.host)]


def planned(config: EngineConfig, plan: Plan) -> EngineConfig:
    """`config` as the plan says; the user's own placements go before the plan's."""
    placing = config.placing
    if plan.gpu_layers is not None:
        placing = replace(placing, gpu_layers=plan.gpu_layers, tensor_split=tuple(map(float, plan.tensor_split)))
    loading = replace(config.loading, override_tensor=(*config.loading.override_tensor, *plan.placements))
    return replace(config, n_ctx=plan.n_ctx, placing=placing, loading=loading)


def _why_fixed(config: EngineConfig) -> str:
    """The choice of the user with which layers cannot be moved; empty: none."""
    choices = {
        "--gpu-layers": config.placing.gpu_layers >= 0,
        "--tensor-split": bool(config.placing.tensor_split),
        f"--split-mode {config.placing.split_mode}": config.placing.split_mode in ("row", "tensor"),
        "--override-tensor, --cpu-moe or one of its kind": bool(config.loading.placements),
    }
    return next((f"{flag} is given" for flag, is_given in choices.items() if is_given), "")


def _tell(config: EngineConfig, fitted: Fitted, n_ctx_whole: int) -> None:
    plan, name = fitted.plan, config.path.name
    if fitted.missing:
        log.warning("%s does not fit into memory, and is tried all the same: %s", name, fitted.missing)
    if 0 < plan.n_ctx < n_ctx_whole:
        log.info(
            "%s: a context of %d tokens instead of %d, for which there is memory; --ctx-size chooses another", name, plan.n_ctx, n_ctx_whole
        )
    if plan.gpu_layers is not None:
        n_part = len(plan.placements)
        log.info("%s: %d layers on devices, %d of them in part; the rest is in host memory", name, plan.gpu_layers, n_part)


def memory_limit_bytes() -> int:
    """Of this process's control group; 0: none."""
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() and int(text) < 1 << 60 else 0
    return 0


def _room_bytes(devices: Sequence[str]) -> int:
    """Free memory of the one device, or the host's where there is none; of several nothing is certain: 0."""
    if len(devices) > 1:
        return 0
    if devices:
        return native.free_memory_bytes(devices[0])
    total = native.host_memory_bytes()
    return min(total, memory_limit_bytes() or total)


def _at_most_bytes(config: EngineConfig, header: GgufHeader, n_ctx: int) -> float:
    """More than the model takes.  Where it fits by that much nothing need be measured, which takes as long as reading its vocabulary."""
    head = max(_integer(header, "attention.key_length"), _integer(header, "attention.value_length"))
    width = max(_integer(header, "embedding_length"), _integer(header, "attention.head_count") * head)
    if not (width and n_ctx):
        return math.inf
    kv_bytes = CELL_BYTES * width * n_ctx * _integer(header, "block_count")
    return sum(path.stat().st_size for path in split_files(config.path)) + kv_bytes + COMPUTE_ALLOWANCE_BYTES


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
