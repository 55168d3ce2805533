"""What a request that does not say otherwise is sampled with.  The fields bear the names that a request uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lsm.config.setting import setting, switch
from lsm.config.values import LogitBias, Number, Samplers, Text, Whole

GROUP = "Sampling defaults (a request may override each)"
SAMPLER_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
SEED_RANDOM = 0xFFFFFFFF  # llama.cpp's "draw a seed": what -1 means
UINT32_MAX = 0xFFFFFFFF


def _breakers(texts: Sequence[str]) -> tuple[str, ...]:
    """The word `none` takes away what stands before it, the defaults too."""
    after_none = texts[len(texts) - texts[::-1].index("none") :] if "none" in texts else texts
    return tuple(after_none)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Defaults of sampling.  `seed` is a uint32, SEED_RANDOM for a fresh one per request; `n_predict` -1 is without limit."""

    samplers: tuple[str, ...] = setting(
        "--samplers",
        "--sampler-seq",
        "--sampling-seq",
        group=GROUP,
        read=Samplers(),
        default=SAMPLER_ORDER,
        default_text="edskypmxt",
        help="samplers in the order of their use: names divided by ';', or letters: penalties e, dry d, top_n_sigma s, top_k k, typ_p y,"
        " top_p p, min_p m, xtc x, temperature t",
    )
    seed: int = setting(
        "-s",
        "--seed",
        group=GROUP,
        read=Whole(0, UINT32_MAX, {"-1": SEED_RANDOM}),
        default=SEED_RANDOM,
        default_text="-1",
        help="seed of the random numbers; -1 draws one for each request",
    )
    temperature: float = setting(
        "--temp",
        "--temperature",
        group=GROUP,
        read=Number(0.0),
        default=0.8,
        env="LLAMA_ARG_TEMPERATURE",
        help="temperature; 0 takes the likeliest token",
    )
    top_k: int = setting(
        "--top-k", group=GROUP, read=Whole(0), default=40, env="LLAMA_ARG_TOP_K", help="keep the k likeliest tokens; 0 keeps all"
    )
    top_p: float = setting(
        "--top-p",
        group=GROUP,
        read=Number(0.0, 1.0),
        default=0.95,
        env="LLAMA_ARG_TOP_P",
        help="keep the likeliest tokens up to this sum; 1 keeps all",
    )
    min_p: float = setting(
        "--min-p",
        group=GROUP,
        read=Number(0.0, 1.0),
        default=0.05,
        env="LLAMA_ARG_MIN_P",
        help="keep tokens at least this likely, relative to the likeliest; 0 keeps all",
    )
    top_n_sigma: float = setting(
        "--top-n-sigma",
        "--top-nsigma",
        group=GROUP,
        read=Number(),
        default=-1.0,
        help="keep logits within n standard deviations of the best; -1 keeps all",
    )
    xtc_probability: float = setting(
        "--xtc-probability", group=GROUP, read=Number(0.0, 1.0), default=0.0, help="chance of an XTC cut; 0 is off"
    )
    xtc_threshold: float = setting(
        "--xtc-threshold", group=GROUP, read=Number(0.0, 1.0), default=0.1, help="XTC threshold; above 0.5 is off"
    )
    typical_p: float = setting(
        "--typical", "--typical-p", group=GROUP, read=Number(0.0, 1.0), default=1.0, help="locally typical sampling; 1 is off"
    )
    repeat_last_n: int = setting(
        "--repeat-last-n", group=GROUP, read=Whole(0), default=64, unit="tokens", help="how far the penalties look back; 0 is off"
    )
    repeat_penalty: float = setting(
        "--repeat-penalty",
        group=GROUP,
        read=Number(1e-30),
        default=1.0,
        env="LLAMA_ARG_REPEAT_PENALTY",
        help="divisor for tokens seen before; 1 is off",
    )
    presence_penalty: float = setting(
        "--presence-penalty",
        group=GROUP,
        read=Number(),
        default=0.0,
        env="LLAMA_ARG_PRESENCE_PENALTY",
        help="taken once from tokens seen before; 0 is off",
    )
    frequency_penalty: float = setting(
        "--frequency-penalty",
        group=GROUP,
        read=Number(),
        default=0.0,
        env="LLAMA_ARG_FREQUENCY_PENALTY",
        help="taken from tokens for each time they were seen; 0 is off",
    )
    dry_multiplier: float = setting("--dry-multiplier", group=GROUP, read=Number(0.0), default=0.0, help="strength of DRY; 0 is off")
    dry_base: float = setting("--dry-base", group=GROUP, read=Number(1.0), default=1.75, help="base of DRY's power")
    dry_allowed_length: int = setting(
        "--dry-allowed-length", group=GROUP, read=Whole(0), default=2, unit="tokens", help="repeats up to this stay free"
    )
    dry_penalty_last_n: int = setting(
        "--dry-penalty-last-n", group=GROUP, read=Whole(0), default=64, unit="tokens", help="how far DRY looks back; 0 is off"
    )
    dry_sequence_breakers: tuple[str, ...] = setting(
        "--dry-sequence-breaker",
        group=GROUP,
        read=Text(),
        default=("\n", ":", '"', "*"),
        collect=_breakers,
        default_text='newline : " *',
        help="a text over which DRY does not look; the first use clears the defaults, the word none leaves no breaker",
    )
    dynatemp_range: float = setting(
        "--dynatemp-range", group=GROUP, read=Number(0.0), default=0.0, help="dynamic temperature: this far both ways; 0 is off"
    )
    dynatemp_exponent: float = setting(
        "--dynatemp-exp", "--dynatemp-exponent", group=GROUP, read=Number(), default=1.0, help="exponent of the same"
    )
    mirostat: int = setting(
        "--mirostat", group=GROUP, read=Whole(0, 2), default=0, help="0 off, 1 Mirostat, 2 Mirostat 2.0; replaces the other samplers"
    )
    mirostat_eta: float = setting("--mirostat-lr", group=GROUP, read=Number(0.0), default=0.1, help="Mirostat's learning rate eta")
    mirostat_tau: float = setting("--mirostat-ent", group=GROUP, read=Number(0.0), default=5.0, help="Mirostat's target entropy tau")
    logit_bias: tuple[tuple[int, float], ...] = setting(
        "-l",
        "--logit-bias",
        group=GROUP,
        read=LogitBias(),
        default=(),
        collect=tuple,
        help="added to the logit of one token; 2-inf forbids token 2",
    )
    ignore_eos: bool = switch("--ignore-eos", group=GROUP, default=False, help="do not end at the model's end token")
    n_predict: int = setting(
        "-n",
        "--predict",
        "--n-predict",
        group=GROUP,
        read=Whole(-1),
        default=-1,
        env="LLAMA_ARG_N_PREDICT",
        unit="tokens",
        help="longest answer; -1 is without limit",
    )
    stop: tuple[str, ...] = setting(
        "-r",
        "--reverse-prompt",
        group=GROUP,
        read=Text(),
        default=(),
        collect=tuple,
        help="end the answer before this text (for requests without `stop`)",
    )
