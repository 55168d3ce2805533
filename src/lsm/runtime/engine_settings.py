"""The engine's share of the settings, for one model."""

from __future__ import annotations

import os

from lsm.chat.media import new_marker
from lsm.config import Settings
from lsm.config.media import MediaSettings
from lsm.config.settings import ModelSource
from lsm.engine.config import EngineConfig, ProjectorConfig

MARKER = new_marker(os.environ)  # one for the process


def engine_config(source: ModelSource, settings: Settings) -> EngineConfig:
    return EngineConfig(
        path=source.path,
        n_ctx=settings.n_ctx,
        n_parallel=settings.n_parallel,
        kv_unified=settings.kv_unified,
        n_batch=settings.n_batch,
        n_ubatch=settings.n_ubatch,
        threads=settings.threads,
        threads_batch=settings.threads_batch,
        flash_attn=settings.flash_attn,
        cache_type_k=settings.cache_type_k,
        cache_type_v=settings.cache_type_v,
        swa_full=settings.swa_full,
        batching=settings.batching,
        cache_reuse=settings.options.n_cache_reuse,
        sampling=settings.options.sampling,
        loading=settings.loading,
        placing=settings.placing,
        evict_kv=settings.sleep_evict_kv,
        computing=settings.computing,
        keeping=settings.keeping,
        steering=settings.steering,
        speculating=settings.speculating,
        projector=_projector(source, settings.media),
    )


def _projector(source: ModelSource, media: MediaSettings) -> ProjectorConfig | None:
    if source.projector is None:
        return None
    return ProjectorConfig(
        path=source.projector,
        marker=MARKER,
        on_demand=media.mmproj_ondemand,
        device=media.encodes_on,
        image_min_tokens=media.image_min_tokens,
        image_max_tokens=media.image_max_tokens,
        batch_max_tokens=media.mtmd_batch_max_tokens,
    )
