"""Flags of how llama.cpp loads and computes: settings of `lsm.tuning`, whose fields and defaults stand there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsm.config.placing_readers import CpuMask, CpuRange, KvOverrides, MebibyteList, TensorPlaces
from lsm.config.readers import Choice, Number, OnOff, Whole
from lsm.config.setting import Setting, entry_of, flat
from lsm.tuning import POOLINGS, Computing, Loading, Placing

WEIGHTS = "Weights: how they are loaded and where they are put"
COMPUTING = "Computing"
EMBEDDINGS = "Embeddings, reranking, infill"

INT32_MAX = 2**31 - 1

_PARTS: Mapping[str, Any] = {"loading": Loading(), "placing": Placing(), "computing": Computing()}


def tuning_entry(name: str, *flags: str, **rest: Any) -> Setting:
    """The setting of one field of Loading, Placing or Computing."""
    path, owner = next((path, part) for path, part in _PARTS.items() if name in part.__dataclass_fields__)
    return entry_of(path, owner, name, *flags, **rest)


def _switch(name: str, *on: str, off: tuple[str, ...] = (), **rest: Any) -> Setting:
    """A boolean.  `on` and `off` are flags; what has no flag for one of them starts as that."""
    return tuning_entry(name, read=OnOff(), constants={**dict.fromkeys(on, "on"), **dict.fromkeys(off, "off")}, **rest)


_LOADING = (
    tuning_entry(
        "load_mode",
        "-lm",
        "--load-mode",
        group=WEIGHTS,
        read=Choice(("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
        env="LLAMA_ARG_LOAD_MODE",
        help="none reads the file, dio past the page cache; mmap leaves the CPU's weights in the page cache, where the kernel and not a"
        " sleeping model gives them back, and a file that shrinks ends the server; mlock is refused; auto is none",
    ),
    tuning_entry(
        "lazy_mode",
        "-lzm",
        "--lazy-mode",
        group=WEIGHTS,
        read=Choice(("on", "auto", "off")),
        env="LLAMA_ARG_LAZY_MODE",
        help="read rows of the tensors that the architecture marks (per-layer embeddings) when they are needed, out of the mapped"
        " file (--load-mode mmap); auto: of those above 4 GiB",
    ),
    _switch(
        "repack",
        "--repack",
        off=("-nr", "--no-repack"),
        group=WEIGHTS,
        env="LLAMA_ARG_REPACK",
        help="rearrange weights for the CPU's widest instructions",
    ),
    _switch("no_host", "--no-host", group=WEIGHTS, env="LLAMA_ARG_NO_HOST", help="no pinned host buffers, so that weights can be repacked"),
    _switch("check_tensors", "--check-tensors", group=WEIGHTS, help="look for invalid values in the weights"),
    tuning_entry(
        "override_tensor",
        "-ot",
        "--override-tensor",
        group=WEIGHTS,
        read=TensorPlaces(),
        env="LLAMA_ARG_OVERRIDE_TENSOR",
        collect=flat,
        help="put tensors whose name matches the regular expression into buffers of this type (CPU, CUDA0, ..)",
    ),
    _switch("cpu_moe", "-cmoe", "--cpu-moe", group=WEIGHTS, env="LLAMA_ARG_CPU_MOE", help="keep the experts of a mixture in host memory"),
    tuning_entry(
        "n_cpu_moe",
        "-ncmoe",
        "--n-cpu-moe",
        group=WEIGHTS,
        read=Whole(0, 10_000),
        env="LLAMA_ARG_N_CPU_MOE",
        unit="layers",
        help="the same for the first N layers",
    ),
    tuning_entry(
        "n_cpu_ffn",
        "-ncffn",
        "--n-cpu-ffn",
        group=WEIGHTS,
        read=Whole(0, 10_000),
        env="LLAMA_ARG_N_CPU_FFN",
        unit="layers",
        help="keep the dense feed-forward weights of the first N layers in the CPU's memory",
    ),
    tuning_entry(
        "override_kv",
        "--override-kv",
        group=WEIGHTS,
        read=KvOverrides(),
        collect=flat,
        help="replace a value of the file's metadata; types are int, float, bool, str",
    ),
)

_FITTING = (
    tuning_entry(
        "fit",
        "-fit",
        "--fit",
        group=WEIGHTS,
        read=OnOff(),
        env="LLAMA_ARG_FIT",
        help="where -c, -ngl and the like are not given, choose them so that the model fits into free memory",
    ),
    tuning_entry(
        "fit_target_mib",
        "-fitt",
        "--fit-target",
        group=WEIGHTS,
        read=MebibyteList(),
        env="LLAMA_ARG_FIT_TARGET",
        unit="MiB",
        default_text="1024 MiB",
        help="memory that --fit leaves free on each device; one number for all, or one for each",
    ),
    tuning_entry(
        "fit_ctx",
        "-fitc",
        "--fit-ctx",
        group=WEIGHTS,
        read=Whole(1, INT32_MAX),
        env="LLAMA_ARG_FIT_CTX",
        unit="tokens",
        help="smallest context of a slot that --fit may choose",
    ),
)

_COMPUTING = (
    _switch(
        "kv_offload",
        "-kvo",
        "--kv-offload",
        off=("-nkvo", "--no-kv-offload"),
        group=COMPUTING,
        env="LLAMA_ARG_KV_OFFLOAD",
        help="keep the KV cache of layers that are on a GPU there",
    ),
    _switch(
        "op_offload",
        "--op-offload",
        off=("--no-op-offload",),
        group=COMPUTING,
        help="let the GPU compute large batches for layers in host memory",
    ),
    tuning_entry(
        "rope_scaling",
        "--rope-scaling",
        group=COMPUTING,
        read=Choice(("none", "linear", "yarn")),
        env="LLAMA_ARG_ROPE_SCALING_TYPE",
        default_text="the model's",
        help="how RoPE is stretched beyond the trained context",
    ),
    tuning_entry(
        "rope_scale",
        "--rope-scale",
        group=COMPUTING,
        read=Number(0.0),
        env="LLAMA_ARG_ROPE_SCALE",
        default_text="the model's",
        help="stretch the context by this factor; 0 is the model's",
    ),
    tuning_entry(
        "rope_freq_base",
        "--rope-freq-base",
        group=COMPUTING,
        read=Number(0.0),
        env="LLAMA_ARG_ROPE_FREQ_BASE",
        default_text="the model's",
        help="RoPE's base frequency; 0 is the model's",
    ),
    tuning_entry(
        "rope_freq_scale",
        "--rope-freq-scale",
        group=COMPUTING,
        read=Number(0.0),
        env="LLAMA_ARG_ROPE_FREQ_SCALE",
        default_text="the model's",
        help="one over --rope-scale; 0 is the model's",
    ),
    tuning_entry(
        "yarn_orig_ctx",
        "--yarn-orig-ctx",
        group=COMPUTING,
        read=Whole(0, INT32_MAX),
        env="LLAMA_ARG_YARN_ORIG_CTX",
        unit="tokens",
        default_text="the model's",
        help="context that the model was trained for; 0 is what its file says",
    ),
    *(
        tuning_entry(
            name,
            flag,
            group=COMPUTING,
            read=Number(0.0, words={"-1": -1.0}),
            env=f"LLAMA_ARG_{name.upper()}",
            default_text="the model's",
            help=f"YaRN: {what}; -1 is the model's",
        )
        for name, flag, what in (
            ("yarn_ext_factor", "--yarn-ext-factor", "how much is extrapolated; 0 only interpolates"),
            ("yarn_attn_factor", "--yarn-attn-factor", "scale of the attention's magnitude"),
            ("yarn_beta_slow", "--yarn-beta-slow", "high correction dimension (alpha)"),
            ("yarn_beta_fast", "--yarn-beta-fast", "low correction dimension (beta)"),
        )
    ),
    _switch("warmup", "--warmup", off=("--no-warmup",), group=COMPUTING, help="run once with an empty prompt at the end of the load"),
    tuning_entry(
        "cpu_mask", "-C", "--cpu-mask", group=COMPUTING, read=CpuMask(), default_text="all", help="CPUs to compute on, a hexadecimal mask"
    ),
    tuning_entry(
        "cpu_range",
        "-Cr",
        "--cpu-range",
        group=COMPUTING,
        read=CpuRange(),
        default_text="all",
        help="the same as a range; adds to --cpu-mask",
    ),
    tuning_entry(
        "prio",
        "--prio",
        group=COMPUTING,
        read=Whole(-1, 3, {"-1": -1}),
        help="priority of the computing threads: -1 low, 0 normal, 1 medium, 2 high, 3 highest; above 0 needs the right to raise it",
    ),
)

_EMBEDDINGS = (
    _switch(
        "embeddings",
        "--embedding",
        "--embeddings",
        group=EMBEDDINGS,
        env="LLAMA_ARG_EMBEDDINGS",
        help="answer requests for embeddings; costs memory for the outputs of a whole step",
    ),
    _switch(
        "rerank",
        "--rerank",
        "--reranking",
        group=EMBEDDINGS,
        env="LLAMA_ARG_RERANKING",
        help="answer requests that rank documents; means --pooling rank",
    ),
    tuning_entry(
        "pooling",
        "--pooling",
        group=EMBEDDINGS,
        read=Choice(POOLINGS),
        env="LLAMA_ARG_POOLING",
        default_text="the model's",
        help="how one embedding is made of those of the tokens; none gives one for each token",
    ),
    tuning_entry(
        "embd_normalize",
        "--embd-normalize",
        group=EMBEDDINGS,
        read=Whole(-1, 1000, {"-1": -1}),
        help="-1 leaves embeddings as they are, 0 scales the largest to 32760, 1 makes the sum of magnitudes 1, 2 the length, p the p-norm;"
        " a request may say otherwise",
    ),
    _switch(
        "spm_infill",
        "--spm-infill",
        group=EMBEDDINGS,
        help="in prompts of /infill the suffix comes before the prefix; some models want it so",
    ),
)

TUNING: tuple[Setting, ...] = (*_LOADING, *_FITTING, *_COMPUTING, *_EMBEDDINGS)
