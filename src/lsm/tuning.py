"""How llama.cpp is to load a model and to compute with it: frozen values that cross between rooms.  Imports nothing of lsm.

Names and defaults follow llama-server's flags (requirements C.1, C.2); what a value does is said where the flag stands, in
`lsm.config.tuning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POOLINGS = ("none", "mean", "cls", "last", "rank")
SPLIT_MODES = ("none", "layer", "row", "tensor")
PRIORITIES = {-1: 5, 0: 0, 1: -5, 2: -10, 3: -20}  # --prio: what it adds to the niceness of a thread

MOE_TENSORS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # the experts' matrices of a mixture
DENSE_TENSORS = r"\.ffn_(up|down|gate)\."  # the feed-forward matrices of a dense layer
CPU_BUFFER = "CPU"  # ggml's name of ordinary host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How the weights come into memory."""

    load_mode: str = "auto"  # auto, none, mmap or dio
    lazy_mode: str = "auto"  # on, auto or off
    repack: bool = True
    no_host: bool = False
    check_tensors: bool = False
    override_tensor: tuple[tuple[str, str], ...] = ()  # (regular expression on tensor names, name of a buffer type)
    override_kv: tuple[tuple[str, bool | int | float | str], ...] = ()  # (metadata key, value)
    cpu_moe: bool = False
    n_cpu_moe: int = 0
    n_cpu_ffn: int = 0
    fit: bool = True
    fit_target_mib: tuple[int, ...] = (1024,)  # one for each device, or one for all
    fit_ctx: int = 4096

    @property
    def placements(self) -> tuple[tuple[str, str], ...]:
        """(regular expression, buffer type): the first that a tensor's name matches decides where it goes."""
        patterns = [MOE_TENSORS] if self.cpu_moe else []
        patterns += [rf"blk\.{i}{MOE_TENSORS}" for i in range(self.n_cpu_moe)]
        patterns += [rf"blk\.{i}{DENSE_TENSORS}" for i in range(self.n_cpu_ffn)]
        return (*self.override_tensor, *((pattern, CPU_BUFFER) for pattern in patterns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Which devices hold the model."""

    devices: tuple[str, ...] | None = None  # names; none: the CPU alone; None: every GPU whose memory can be released
    gpu_layers: int = -1  # -1: all
    split_mode: str = "layer"  # one of SPLIT_MODES
    tensor_split: tuple[float, ...] = ()  # one share for each device; none: by free memory
    main_gpu: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """How a context computes.  0 of a RoPE value, and a negative one of YaRN's: what the model says."""

    embeddings: bool = False
    rerank: bool = False
    pooling: str | None = None  # one of POOLINGS; None: what the model says
    embd_normalize: int = 2
    spm_infill: bool = False
    kv_offload: bool = True
    op_offload: bool = True
    rope_scaling: str | None = None  # none, linear or yarn; None: what the model says
    rope_scale: float = 0.0
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_orig_ctx: int = 0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_beta_fast: float = -1.0
    warmup: bool = True
    cpu_mask: tuple[int, ...] = ()
    cpu_range: tuple[int, ...] = ()
    prio: int = 0  # a key of PRIORITIES

    @property
    def cpus(self) -> frozenset[int]:
        """CPUs that the computing threads may use; none: those of the process."""
        return frozenset((*self.cpu_mask, *self.cpu_range))

    @property
    def embeds(self) -> bool:
        """Whether requests for embeddings or scores are answered."""
        return self.embeddings or self.rerank

    @property
    def pooling_wanted(self) -> str | None:
        return "rank" if self.rerank else self.pooling

    @property
    def freq_scale(self) -> float:
        """Factor on RoPE's frequencies, by which the context grows inversely; 0: the model's."""
        return 1.0 / self.rope_scale if self.rope_scale else self.rope_freq_scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """What acts beside the weights: files, and how strongly each acts."""

    lora: tuple[tuple[Path, float], ...] = ()
    lora_scaled: tuple[tuple[Path, float], ...] = ()
    lora_init_without_apply: bool = False
    control_vector: tuple[tuple[Path, float], ...] = ()
    control_vector_scaled: tuple[tuple[Path, float], ...] = ()
    control_vector_layers: tuple[int, int] | None = None  # first and last; None: all

    @property
    def adapters(self) -> tuple[tuple[Path, float], ...]:
        """Each LoRA adapter's file and the scale it acts by at first; its place is its number."""
        files = (*self.lora, *self.lora_scaled)
        return tuple((path, 0.0) for path, _ in files) if self.lora_init_without_apply else files

    @property
    def control_vectors(self) -> tuple[tuple[Path, float], ...]:
        return (*self.control_vector, *self.control_vector_scaled)

    @property
    def is_used(self) -> bool:
        return bool(self.adapters or self.control_vectors)


AS_IT_COMES = Loading()
WHERE_IT_FITS = Placing()
AS_THE_MODEL_SAYS = Computing()
