"""From a request body to `Options`: ranges, aliases, and what the settings say where the request says nothing.

A value out of a *hard* range is refused; every other range is a clamp, as in llama-server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lsm.api import Options, Sampling
from lsm.config.readers import Samplers
from lsm.errors import InvalidRequest
from lsm_http.bodies import Generation
from lsm_http.constraints import constraints

INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1
INT64_MAX = 2**63 - 1
MAX_LOGIT_BIASES = 100_000
MAX_ID_DIGITS = 10
LOGPROBS_DEFAULT = 20

Tokenizer = Callable[[str], Sequence[int]]

HARD: dict[str, tuple[float, float]] = {
    "sse_ping_interval": (-1, INT32_MAX),
    "t_max_predict_ms": (-1, INT64_MAX),
    "n_predict": (-1, INT32_MAX),
    "max_completion_tokens": (-1, INT32_MAX),
    "max_tokens": (-1, INT32_MAX),
    "id_slot": (-1, INT32_MAX),
    "n": (1, INT32_MAX),
    "n_cmpl": (1, INT32_MAX),
    "n_keep": (-1, INT32_MAX),
    "n_discard": (0, INT32_MAX),
    "n_cache_reuse": (0, INT32_MAX),
    "seed": (-1, UINT32_MAX),
    "repeat_last_n": (0, INT32_MAX),
    "dry_allowed_length": (0, INT32_MAX),
    "dry_penalty_last_n": (0, INT32_MAX),
    "min_keep": (0, INT32_MAX),
    "adaptive_decay": (0.0, 0.99),
    "top_logprobs": (0, INT32_MAX),
}
CLAMPED: dict[str, tuple[float, float]] = {
    "top_k": (0, INT32_MAX),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "temperature": (0.0, math.inf),
    "mirostat": (0, 2),
    "adaptive_target": (-math.inf, 1.0),
}
SAMPLING_AS_IS = (
    "top_n_sigma", "typical_p", "dynatemp_range", "dynatemp_exponent", "repeat_penalty", "frequency_penalty", "presence_penalty",
    "dry_multiplier", "mirostat_tau", "mirostat_eta", "adaptive_decay", "ignore_eos", "backend_sampling", "post_sampling_probs",
)  # fmt: skip
SAMPLING_RANGED = ("seed", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_keep", *CLAMPED)


def make_options(body: Generation, defaults: Options, tokenize: Tokenizer, n_vocab: int) -> Options:
    """`tokenize` serves logit biases that name a text.  Raises `InvalidRequest` naming the field."""
    for name, (low, high) in HARD.items():
        _check_hard(name, getattr(body, name), low, high)
    stop = _stop_strings(body.stop)
    return replace(
        defaults,
        max_tokens=_first(body.n_predict, body.max_completion_tokens, body.max_tokens, defaults.max_tokens),
        stop=stop or defaults.stop,
        sampling=_sampling(body, defaults.sampling, tokenize, n_vocab),
        cache_prompt=_first(body.cache_prompt, defaults.cache_prompt),
        id_slot=_first(body.id_slot, defaults.id_slot),
        t_max_predict_ms=_first(body.t_max_predict_ms, defaults.t_max_predict_ms),
        n=n_choices(body),
        n_keep=_first(body.n_keep, defaults.n_keep),
        n_discard=_first(body.n_discard, defaults.n_discard),
        n_cache_reuse=_first(body.n_cache_reuse, defaults.n_cache_reuse),
        lora=None if not body.lora else tuple((entry.id, entry.scale) for entry in body.lora),
        return_progress=bool(body.stream and body.return_progress),
        timings_per_token=bool(body.stream and body.timings_per_token),
    )


def n_choices(body: Generation) -> int:
    """How many answers are asked for; the engine knows how many there can be."""
    return _first(body.n_cmpl, body.n, 1)


def check_tokens(tokens: Sequence[int], n_vocab: int, field: str) -> tuple[int, ...]:
    """Raises `InvalidRequest` for an id that the model does not have."""
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(f"token {token} does not exist; this model has 0 to {n_vocab - 1}", field)
    return tuple(tokens)


def _sampling(body: Generation, defaults: Sampling, tokenize: Tokenizer, n_vocab: int) -> Sampling:
    given: dict[str, Any] = {name: getattr(body, name) for name in (*SAMPLING_AS_IS, *SAMPLING_RANGED)}
    changes = {name: _clamp(name, value) for name, value in given.items() if value is not None}
    if body.dry_base is not None and body.dry_base >= 1.0:  # below 1 it would grow without bound, so the default stays
        changes["dry_base"] = body.dry_base
    if body.samplers is not None:
        changes["samplers"] = _samplers(body.samplers)
    if body.dry_sequence_breakers is not None:
        changes["dry_sequence_breakers"] = _breakers(body.dry_sequence_breakers)
    if body.logit_bias is not None:
        changes["logit_bias"] = _logit_biases(body.logit_bias, tokenize, n_vocab)
    return replace(defaults, **changes, **constraints(body), n_probs=_n_probs(body))


def _n_probs(body: Generation) -> int | None:
    """How many likely tokens are told with each one; None: nothing is told.

    llama-server's `n_probs`, where 0 is off; OpenAI's number `logprobs` of a completion, where 0 tells of the chosen token alone; OpenAI's
    `logprobs: true` with `top_logprobs`, which is 20 if it is not given, as in llama-server.
    """
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs requires logprobs to be set to true", "top_logprobs")
    if body.n_probs is not None:
        return min(body.n_probs, INT32_MAX) if body.n_probs > 0 else None
    if body.logprobs is True:
        return LOGPROBS_DEFAULT if body.top_logprobs is None else body.top_logprobs
    if body.logprobs is None or body.logprobs is False:
        return None
    return min(max(body.logprobs, 0), INT32_MAX)


def _check_hard(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InvalidRequest(f"Value must be between {low} and {high}", name)


def _clamp(name: str, value: Any) -> Any:
    if name not in CLAMPED:
        return value
    low, high = CLAMPED[name]
    return min(max(value, low), high)


def _first(*values: Any) -> Any:
    return next(value for value in values if value is not None)


def _stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    texts = [stop] if isinstance(stop, str) else stop or []
    return tuple(text for text in texts if text)


def _samplers(wanted: str | list[str]) -> tuple[str, ...]:
    """Names in a list, or one letter for each."""
    text = wanted if isinstance(wanted, str) else ";".join(wanted)
    if not text:
        return ()
    try:
        return Samplers()(text)
    except ValueError as error:
        raise InvalidRequest(str(error), "samplers") from None


def _breakers(breakers: list[str]) -> tuple[str, ...]:
    if not breakers or not all(breakers):
        raise InvalidRequest("must be a non-empty list of non-empty strings", "dry_sequence_breakers")
    return tuple(breakers)


def _logit_biases(wanted: Any, tokenize: Tokenizer, n_vocab: int) -> tuple[tuple[int, float], ...]:
    """Pairs or an object; a key is a token's id, or a text whose every token is meant; false forbids."""
    pairs = wanted.items() if isinstance(wanted, dict) else wanted
    if len(pairs) > MAX_LOGIT_BIASES:
        raise InvalidRequest(f"must have at most {MAX_LOGIT_BIASES} entries", "logit_bias")
    return tuple((token, _bias(bias)) for key, bias in pairs for token in _tokens_of(key, tokenize, n_vocab))


def _tokens_of(key: int | str, tokenize: Tokenizer, n_vocab: int) -> tuple[int, ...]:
    if isinstance(key, str) and not (key.isdecimal() and len(key) <= MAX_ID_DIGITS):
        return tuple(tokenize(key))
    return check_tokens([int(key)], n_vocab, "logit_bias")


def _bias(value: float | bool) -> float:
    if value is True:
        raise InvalidRequest("a bias is a number, or false to forbid the token", "logit_bias")
    return -math.inf if value is False else float(value)
