"""Flags of speculative decoding: settings of `lsm.speculating`, whose fields and defaults stand there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from lsm.config.placing_readers import DeviceNames, TensorPlaces
from lsm.config.readers import Choice, CommaList, FilePath, Number, OnOff, Whole
from lsm.config.setting import Setting, entry_of, flat
from lsm.speculating import NO_SPEC, SPEC_TYPES, Speculating

SPECULATION = "Speculative decoding"
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
N_MAX = 1024  # tokens of an n-gram, and of a draft
THREADS = Whole(1, 512, {"-1": -1})
LAYERS = Whole(0, 100_000, {"auto": -1, "all": -1, "-1": -1})
NOT_HERE = {f"draft-{name}" for name in ("eagle3", "mtp", "dflash", "dspark")}


@dataclass(frozen=True, slots=True)
class SpecTypes:
    """`ngram-mod,draft-simple`, or `none`."""

    metavar: str = "KIND,..|none"

    def __call__(self, text: str) -> tuple[str, ...]:
        kinds = CommaList()(text)
        for kind in kinds:
            if kind in NOT_HERE:
                raise ValueError(f"has {kind}, which is not supported: llama.cpp offers no C API for what it reads of the model")
            if kind not in (*SPEC_TYPES, NO_SPEC):
                raise ValueError(f"has {kind!r}, which is none of {', '.join((NO_SPEC, *SPEC_TYPES))}")
        return kinds


@dataclass(frozen=True, slots=True)
class Probabilities:
    """`0.9,0.5`."""

    metavar: str = "P0,P1,.."

    def __call__(self, text: str) -> tuple[float, ...]:
        return tuple(map(Number(0.0, 1.0), CommaList()(text)))


_entry = partial(entry_of, "speculating", Speculating(), group=SPECULATION)


def _ngrams(kind: str, field: str, is_lookup_of: str) -> Iterator[Setting]:
    size_n = _entry(
        f"{field}_size_n",
        f"--spec-{kind}-size-n",
        read=Whole(1, N_MAX),
        unit="tokens",
        help=f"{kind}: {is_lookup_of}",
    )
    size_m = _entry(f"{field}_size_m", f"--spec-{kind}-size-m", read=Whole(1, N_MAX), unit="tokens", help=f"{kind}: most tokens of a draft")
    hits = "how often they must have been there before"
    return iter((size_n, size_m, _entry(f"{field}_min_hits", f"--spec-{kind}-min-hits", read=Whole(1, N_MAX), help=f"{kind}: {hits}")))


_DRAFT = (
    _entry(
        "draft_model",
        "-md",
        "--spec-draft-model",
        "--model-draft",
        read=FilePath("FILE"),
        env="LLAMA_ARG_SPEC_DRAFT_MODEL",
        default_text="none",
        help="model that guesses for draft-simple: a small one with the same vocabulary; it sleeps and wakes with the model",
    ),
    _entry(
        "draft_n_max",
        "--spec-draft-n-max",
        read=Whole(0, N_MAX),
        env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
        unit="tokens",
        help="draft-simple: most tokens of a draft",
    ),
    _entry(
        "draft_n_min",
        "--spec-draft-n-min",
        read=Whole(0, N_MAX),
        env="LLAMA_ARG_SPEC_DRAFT_N_MIN",
        unit="tokens",
        help="draft-simple: shorter drafts are not used",
    ),
    _entry(
        "draft_p_min",
        "--spec-draft-p-min",
        "--draft-p-min",
        read=Number(0.0, 1.0),
        env="LLAMA_ARG_SPEC_DRAFT_P_MIN",
        help="draft-simple: a draft ends before a token that the draft model gives less than this, among the ten that it likes best",
    ),
    _entry(
        "draft_devices",
        "-devd",
        "--spec-draft-device",
        "--device-draft",
        read=DeviceNames(),
        default_text="those of --device",
        help="devices for the draft model; none: the CPU alone",
    ),
    _entry(
        "draft_gpu_layers",
        "-ngld",
        "--spec-draft-ngl",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
        read=LAYERS,
        env="LLAMA_ARG_N_GPU_LAYERS_DRAFT",
        default_text="auto: all",
        help="layers of the draft model that go to the GPUs",
    ),
    _entry(
        "draft_cache_type_k",
        "-ctkd",
        "--spec-draft-type-k",
        "--cache-type-k-draft",
        read=Choice(CACHE_TYPES),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
        help="type of K in the draft model's cache",
    ),
    _entry(
        "draft_cache_type_v",
        "-ctvd",
        "--spec-draft-type-v",
        "--cache-type-v-draft",
        read=Choice(CACHE_TYPES),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
        help="type of V in the draft model's cache",
    ),
    _entry(
        "draft_override_tensor",
        "-otd",
        "--spec-draft-override-tensor",
        "--override-tensor-draft",
        read=TensorPlaces(),
        collect=flat,
        default_text="none",
        help="where tensors of the draft model go, by their names",
    ),
    _entry(
        "draft_cpu_moe",
        read=OnOff(),
        env="LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
        constants=dict.fromkeys(("-cmoed", "--spec-draft-cpu-moe", "--cpu-moe-draft"), "on"),
        help="keep the draft model's experts in the CPU's memory",
    ),
    _entry(
        "draft_n_cpu_moe",
        "-ncmoed",
        "--spec-draft-n-cpu-moe",
        "--spec-draft-ncmoe",
        "--n-cpu-moe-draft",
        read=Whole(0, 1024),
        env="LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
        unit="layers",
        help="the same for the first layers",
    ),
    _entry(
        "draft_threads",
        "-td",
        "--spec-draft-threads",
        "--threads-draft",
        read=THREADS,
        help="CPU threads of the draft model for guessing; -1: the same as -t",
    ),
    _entry(
        "draft_threads_batch",
        "-tbd",
        "--spec-draft-threads-batch",
        "--threads-batch-draft",
        read=THREADS,
        help="the same for prompts; -1: the same as -tb",
    ),
)

SPECULATING: tuple[Setting, ...] = (
    _entry(
        "types",
        "--spec-type",
        read=SpecTypes(),
        env="LLAMA_ARG_SPEC_TYPE",
        constants={"--spec-default": "ngram-mod"},
        collect=flat,
        default_text="draft-simple with --spec-draft-model, else none",
        help="what guesses the next tokens, of which the model verifies several in one batch: a draft model (draft-simple), or what was in"
        f" the text before; of several the first that guesses something, in this order: {', '.join(SPEC_TYPES)}",
    ),
    *_DRAFT,
    _entry(
        "ngram_mod_n_match",
        "--spec-ngram-mod-n-match",
        read=Whole(1, N_MAX),
        unit="tokens",
        help="ngram-mod: tokens whose successor is remembered, for all slots in one table of 16 MiB",
    ),
    _entry("ngram_mod_n_min", "--spec-ngram-mod-n-min", read=Whole(0, N_MAX), unit="tokens", help="ngram-mod: shorter drafts are not used"),
    _entry("ngram_mod_n_max", "--spec-ngram-mod-n-max", read=Whole(0, N_MAX), unit="tokens", help="ngram-mod: most tokens of a draft"),
    *_ngrams("ngram-simple", "ngram_simple", "tokens that must have been there before; what followed them the last time is the draft"),
    *_ngrams("ngram-map-k", "ngram_map_k", "the same; what was guessed in vain is guessed shorter the next time"),
    *_ngrams("ngram-map-k4v", "ngram_map_k4v", "the same, but only where one continuation is twice as frequent as the others together"),
    _entry(
        "lookup_cache_static",
        "-lcs",
        "--lookup-cache-static",
        read=FilePath("FILE"),
        default_text="none",
        help="ngram-cache: counts of a large text, made by llama.cpp's lookup tools",
    ),
    _entry(
        "lookup_cache_dynamic",
        "-lcd",
        "--lookup-cache-dynamic",
        read=FilePath("FILE"),
        default_text="none",
        help="ngram-cache: counts of earlier answers; read, never written",
    ),
    _entry(
        "synth_len",
        "--spec-synth-len",
        read=Number(1.0),
        env="LLAMA_ARG_SPEC_SYNTH_LEN",
        unit="tokens",
        default_text="guesses are verified",
        help="for benchmarks: guesses count as right at random, so that a verification gives so many tokens on average; answers are void",
    ),
    _entry(
        "synth_rates",
        "--spec-synth-rates",
        read=Probabilities(),
        env="LLAMA_ARG_SPEC_SYNTH_RATES",
        default_text="guesses are verified",
        help="the same, by the probability of each position of a draft to be reached",
    ),
)
