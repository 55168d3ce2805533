"""Keyword arguments of a request into `Options`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from lsm.api import Options, Sampling
from lsm.config import SETTINGS, Setting
from lsm.config.readers import OnOff, Text, Whole
from lsm.errors import InvalidRequest
from lsm_embed.values import nearest, shown, value_of

Texts = str | Iterable[str]


class Wishes(TypedDict, total=False):
    """What a request may ask for.  What it leaves out, or gives as None, is as the settings say."""

    max_tokens: int | None  # -1: until the model ends or the context is full
    stop: Texts | None  # end the answer before any of these
    cache_prompt: bool | None
    id_slot: int | None  # -1: any
    t_max_predict_ms: int | None  # -1: no limit
    n_keep: int | None  # tokens that stay at the start when the context shifts; -1: the prompt
    n_discard: int | None  # tokens that leave then; 0: half of the rest
    n_cache_reuse: int | None  # shortest chunk of the cache that is moved to where the prompt has it; 0: none
    special: bool | None  # show special tokens in the text
    samplers: Texts | None
    seed: int | None  # -1: random
    temperature: float | None  # 0: greedy
    top_k: int | None
    top_p: float | None
    min_p: float | None
    top_n_sigma: float | None
    typical_p: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    dynatemp_range: float | None
    dynatemp_exponent: float | None
    repeat_last_n: int | None
    repeat_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Texts | None
    mirostat: int | None
    mirostat_tau: float | None
    mirostat_eta: float | None
    min_keep: int | None
    ignore_eos: bool | None
    logit_bias: Mapping[int, float] | Iterable[tuple[int, float]] | None
    adaptive_target: float | None
    adaptive_decay: float | None
    grammar: str | None  # GBNF, or llguidance's Lark after a first line of %llguidance {}
    grammar_lazy: bool | None  # the grammar rules from the first trigger on
    grammar_triggers: Texts | None
    preserved_tokens: Texts | None  # special tokens that are shown, and may be triggers
    json_schema: str | Mapping[str, Any] | None
    backend_sampling: bool | None
    n_probs: int | None  # tell the likelihood of each token, and of so many others at its place
    post_sampling_probs: bool | None


def _of_request_only(name: str, minimum: int, default: int) -> Setting:
    return Setting(group="", flags=(), read=Whole(minimum), help="", default=default, name=name)


ENTRIES: Mapping[str, Setting] = {
    **{entry.name.rpartition(".")[2]: entry for entry in SETTINGS if entry.name.startswith("options.")},
    "id_slot": _of_request_only("options.id_slot", -1, -1),
    "t_max_predict_ms": _of_request_only("options.t_max_predict_ms", -1, -1),
    "n_discard": _of_request_only("options.n_discard", 0, 0),
    "min_keep": _of_request_only("options.sampling.min_keep", 0, 0),
    "n_probs": _of_request_only("options.sampling.n_probs", 0, 0),
    **{
        name: Setting(group="", flags=(), read=OnOff(), help="", default=False, name=f"options.sampling.{name}")
        for name in ("post_sampling_probs", "grammar_lazy")
    },
    **{
        name: Setting(group="", flags=(), read=Text(), help="", default=(), collect=tuple, name=f"options.sampling.{name}")
        for name in ("grammar_triggers", "preserved_tokens")
    },
}
CONSTRAINTS = frozenset({"grammar", "json_schema"})
OF_SAMPLING = frozenset(field.name for field in dataclasses.fields(Sampling))


def options_for(defaults: Options, wishes: Mapping[str, Any]) -> Options:
    """`defaults` with `wishes` over them.  Raises `InvalidRequest` naming the argument: unknown, of the wrong type, out of range."""
    given = {name: _checked(name, value) for name, value in wishes.items() if value is not None}
    sampling = {name: value for name, value in given.items() if name in OF_SAMPLING}
    if sampling.keys() & CONSTRAINTS:  # one of the request's own takes the place of the settings'
        sampling = {**dict.fromkeys(CONSTRAINTS, ""), **sampling}
    others = {name: value for name, value in given.items() if name not in OF_SAMPLING}
    return dataclasses.replace(defaults, **others, sampling=dataclasses.replace(defaults.sampling, **sampling))


def _checked(name: str, value: Any) -> Any:
    if name not in ENTRIES:
        raise InvalidRequest(f"is not known; {nearest(name, ENTRIES)}", name)
    try:
        return value_of(ENTRIES[name], value)
    except ValueError as refusal:
        raise InvalidRequest(f"{shown(value)} {refusal}", name) from None
