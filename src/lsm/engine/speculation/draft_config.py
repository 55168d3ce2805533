"""The settings of a draft model.  Pure."""

from __future__ import annotations

from dataclasses import replace

from lsm.engine.config import EngineConfig
from lsm.speculating import Speculating

FLAG = "--spec-draft-model"


def draft_config(config: EngineConfig, n_ctx: int) -> EngineConfig:
    """Of the draft model of `config`, whose context has `n_ctx` positions: as many as the target's, in the same parts (S22).

    A sliding window is kept whole: guesses are taken back all the time.
    """
    wanted = config.speculating
    assert wanted.draft_path is not None
    devices = config.placing.devices if wanted.draft_devices is None else wanted.draft_devices
    return replace(
        config,
        path=wanted.draft_path,
        n_ctx=n_ctx,
        threads=config.threads if wanted.draft_threads < 0 else wanted.draft_threads,
        threads_batch=config.threads_batch if wanted.draft_threads_batch < 0 else wanted.draft_threads_batch,
        cache_type_k=wanted.draft_cache_type_k,
        cache_type_v=wanted.draft_cache_type_v,
        swa_full=True,
        placing=replace(config.placing, devices=devices, gpu_layers=wanted.draft_gpu_layers, tensor_split=()),
        loading=replace(
            config.loading,
            override_tensor=wanted.draft_override_tensor,
            cpu_moe=wanted.draft_cpu_moe,
            n_cpu_moe=wanted.draft_n_cpu_moe,
            n_cpu_ffn=0,
            override_kv=(),
        ),
        computing=replace(config.computing, embeddings=False, rerank=False, pooling=None),
        speculating=Speculating(),
    )
