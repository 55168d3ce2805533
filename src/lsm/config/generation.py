"""What a request that does not say otherwise gets: settings of `lsm.values.Options`, whose fields and defaults stand there."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from lsm.config.readers import JsonText, LogitBias, Number, OnOff, Samplers, Text, Whole
from lsm.config.setting import Setting, entry_of
from lsm.values import Options, Sampling

GROUP = "Generation defaults (a request may override each)"
SHARE = Number(0.0, 1.0)
COUNT = Whole(0)
UINT32_MAX = 0xFFFFFFFF


def _option(name: str, *flags: str, **rest: Any) -> Setting:
    """The setting of one field of Options, or of its `sampling`."""
    if name in Sampling.__dataclass_fields__:
        return entry_of("options.sampling", Sampling(), name, *flags, group=GROUP, **rest)
    return entry_of("options", Options(), name, *flags, group=GROUP, **rest)


def _breakers(texts: Sequence[str]) -> tuple[str, ...]:
    """The word `none` takes away what stands before it, the defaults too."""
    after_none = texts[len(texts) - texts[::-1].index("none") :] if "none" in texts else texts
    return tuple(after_none)


SAMPLER_HELP = (
    "samplers in the order of their use: names divided by ';', or letters: penalties e, dry d, top_n_sigma s, top_k k,"
    " typ_p y, top_p p, min_p m, xtc x, temperature t, infill i, adaptive_p a"
)
BREAKER_HELP = "a text over which DRY does not look; the first use clears the defaults, the word none leaves no breaker"

GENERATION: tuple[Setting, ...] = (
    _option("samplers", "--samplers", "--sampler-seq", "--sampling-seq", read=Samplers(), default_text="edskypmxt", help=SAMPLER_HELP),
    _option("seed", "-s", "--seed", read=Whole(-1, UINT32_MAX), help="seed of the random numbers; -1 draws one for each request"),
    _option("temperature", "--temp", "--temperature", read=Number(0.0), env="LLAMA_ARG_TEMPERATURE", help="0 takes the likeliest token"),
    _option("top_k", "--top-k", read=COUNT, env="LLAMA_ARG_TOP_K", help="keep the k likeliest tokens; 0 keeps all"),
    _option("top_p", "--top-p", read=SHARE, env="LLAMA_ARG_TOP_P", help="keep the likeliest tokens up to this sum; 1 keeps all"),
    _option("min_p", "--min-p", read=SHARE, env="LLAMA_ARG_MIN_P", help="keep tokens this likely, relative to the likeliest; 0 keeps all"),
    _option(
        "top_n_sigma", "--top-n-sigma", "--top-nsigma", read=Number(), help="keep logits this many deviations from the best; -1 is off"
    ),
    _option("xtc_probability", "--xtc-probability", read=SHARE, help="chance of an XTC cut; 0 is off"),
    _option("xtc_threshold", "--xtc-threshold", read=SHARE, help="XTC threshold; above 0.5 is off"),
    _option("typical_p", "--typical", "--typical-p", read=SHARE, help="locally typical sampling; 1 is off"),
    _option("repeat_last_n", "--repeat-last-n", read=COUNT, unit="tokens", help="how far the penalties look back; 0 is off"),
    _option(
        "repeat_penalty",
        "--repeat-penalty",
        read=Number(1e-30),
        env="LLAMA_ARG_REPEAT_PENALTY",
        help="divisor for tokens seen before; 1 is off",
    ),
    _option(
        "presence_penalty",
        "--presence-penalty",
        read=Number(),
        env="LLAMA_ARG_PRESENCE_PENALTY",
        help="taken once from tokens seen before; 0 is off",
    ),
    _option(
        "frequency_penalty",
        "--frequency-penalty",
        read=Number(),
        env="LLAMA_ARG_FREQUENCY_PENALTY",
        help="taken from tokens for each time they were seen; 0 is off",
    ),
    _option("dry_multiplier", "--dry-multiplier", read=Number(0.0), help="strength of DRY; 0 is off"),
    _option("dry_base", "--dry-base", read=Number(1.0), help="base of DRY's power"),
    _option("dry_allowed_length", "--dry-allowed-length", read=COUNT, unit="tokens", help="repeats up to this length stay free"),
    _option("dry_penalty_last_n", "--dry-penalty-last-n", read=COUNT, unit="tokens", help="how far DRY looks back; 0 is off"),
    _option(
        "dry_sequence_breakers",
        "--dry-sequence-breaker",
        read=Text(),
        collect=_breakers,
        default_text='newline : " *',
        help=BREAKER_HELP,
    ),
    _option("dynatemp_range", "--dynatemp-range", read=Number(0.0), help="the temperature moves this far both ways; 0 is off"),
    _option("dynatemp_exponent", "--dynatemp-exp", "--dynatemp-exponent", read=Number(), help="exponent of the same"),
    _option("mirostat", "--mirostat", read=Whole(0, 2), help="0 off, 1 Mirostat, 2 Mirostat 2.0; replaces the other samplers"),
    _option("mirostat_eta", "--mirostat-lr", read=Number(0.0), help="Mirostat's learning rate eta"),
    _option("mirostat_tau", "--mirostat-ent", read=Number(0.0), help="Mirostat's target entropy tau"),
    _option(
        "adaptive_target",
        "--adaptive-target",
        read=Number(maximum=1.0),
        help="probability around which the sampler adaptive_p draws; negative is off",
    ),
    _option("adaptive_decay", "--adaptive-decay", read=Number(0.0, 0.99), help="how long adaptive_p remembers: about 1/(1-decay) tokens"),
    _option("logit_bias", "-l", "--logit-bias", read=LogitBias(), collect=tuple, help="added to the logit of one token; 2-inf forbids it"),
    _option("grammar", "--grammar", read=Text("GBNF"), help="grammar that answers must follow"),
    _option("json_schema", "-j", "--json-schema", read=JsonText(), help="JSON schema that answers must follow; {} is any object"),
    _option(
        "backend_sampling",
        read=OnOff(),
        env="LLAMA_ARG_BACKEND_SAMPLING",
        constants={"-bs": "on", "--backend-sampling": "on", "--no-backend-sampling": "off"},
        help="sample where the model runs, as far as the device can; not with a grammar or schema, nor with log-probabilities of the model",
    ),
    _option("ignore_eos", read=OnOff(), constants={"--ignore-eos": "on"}, help="do not end at the model's end token"),
    _option(
        "max_tokens",
        "-n",
        "--predict",
        "--n-predict",
        read=Whole(-1),
        env="LLAMA_ARG_N_PREDICT",
        unit="tokens",
        help="longest answer; -1 is without limit",
    ),
    _option("stop", "-r", "--reverse-prompt", read=Text(), collect=tuple, help="end an answer before this text"),
    _option("special", read=OnOff(), constants={"-sp": "on", "--special": "on"}, help="show special tokens in the text"),
    _option(
        "cache_prompt",
        read=OnOff(),
        env="LLAMA_ARG_CACHE_PROMPT",
        constants={"--cache-prompt": "on", "--no-cache-prompt": "off"},
        help="reuse the part of a prompt that a slot holds already",
    ),
    _option(
        "n_cache_reuse",
        "--cache-reuse",
        read=COUNT,
        env="LLAMA_ARG_CACHE_REUSE",
        unit="tokens",
        help="move chunks of at least this length to where a prompt has them; 0 is off; not with every model",
    ),
    _option(
        "n_keep",
        "--keep",
        read=Whole(-1),
        unit="tokens",
        help="tokens that stay at the start when --context-shift drops older ones; -1 keeps the prompt",
    ),
)


def with_model_defaults(options: Options, given: Container[str], model: Sequence[tuple[str, Any]]) -> Options:
    """The user's word goes before the model file's, that before ours.

    `given`: names of the settings that the user spelled out.  What differs from our defaults was the user's word, too.
    """
    ours, sampling = Sampling(), options.sampling
    is_open = {name: f"options.sampling.{name}" not in given and getattr(sampling, name) == getattr(ours, name) for name, _ in model}
    return replace(options, sampling=replace(sampling, **{name: value for name, value in model if is_open[name]}))
