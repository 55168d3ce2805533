"""How a model is to be loaded: the engine's share of the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lsm.batching import Batching
from lsm.engine.sizes import pool_size
from lsm.engine.threads import usable_cores
from lsm.keeping import Keeping
from lsm.speculating import Speculating
from lsm.tuning import Computing, Loading, Placing, Steering
from lsm.values import Sampling

AUTO_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorConfig:
    """The file that lets a model see or hear.

    on_demand: its encoder is in device memory only while it encodes.  marker: the text that stands for media in a prompt.
    device: where it encodes; "": the model's device, "none": the CPU.
    image_min_tokens, image_max_tokens: -1: what the file says.  batch_max_tokens: embeddings that are computed in one go.
    """

    path: Path
    marker: str
    on_demand: bool = False
    device: str = ""
    image_min_tokens: int = -1
    image_max_tokens: int = -1
    batch_max_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Names and defaults are llama-server's.

    n_ctx: positions in the KV cache; 0: as many as the model was trained for.
    n_parallel: slots; -1: four.  kv_unified: one cache that all slots share, so that one alone may use all of `n_ctx`, rather than an equal
    part for each; None: shared if n_parallel is -1.
    threads: -1: the cores this process may use; threads_batch, for prompts: -1: the same.
    cache_reuse: not 0 if requests will ask for chunks of the cache to be moved (`n_cache_reuse`); then the memory must be able to.
    sampling: what requests get that do not say otherwise, to be held against the vocabulary.
    """

    path: Path
    n_ctx: int = 0
    n_parallel: int = -1
    kv_unified: bool | None = None
    n_batch: int = 512
    n_ubatch: int = 512
    threads: int = -1
    threads_batch: int = -1
    flash_attn: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    swa_full: bool = False
    batching: Batching = Batching()
    cache_reuse: int = 0
    sampling: Sampling = Sampling()
    loading: Loading = Loading()
    placing: Placing = Placing()
    evict_kv: bool = False  # the KV cache will leave too: make room for it
    computing: Computing = Computing()
    keeping: Keeping = Keeping()
    steering: Steering = Steering()
    speculating: Speculating = Speculating()
    projector: ProjectorConfig | None = None

    def sized(self) -> EngineConfig:
        """The same with the size of the cache that `n_ctx_per_slot` asks for."""
        return replace(self, n_ctx=pool_size(self.n_ctx, self.n_slots, self.batching.n_ctx_per_slot))

    @property
    def n_slots(self) -> int:
        return AUTO_SLOTS if self.n_parallel < 0 else self.n_parallel

    @property
    def shares_cells(self) -> bool:
        return self.n_parallel < 0 if self.kv_unified is None else self.kv_unified

    @property
    def n_threads(self) -> int:
        return usable_cores(self.computing.cpus) if self.threads < 0 else self.threads

    @property
    def n_threads_batch(self) -> int:
        return self.n_threads if self.threads_batch < 0 else self.threads_batch
