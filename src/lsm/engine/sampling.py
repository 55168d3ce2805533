"""From the sampling options of a request to the chain of samplers that draws its tokens.  Pure.

Order and meaning are llama-server's: logit biases first, then the samplers in the order asked for, then the draw; mirostat takes the
place of all but the temperature.  Samplers whose options make them do nothing are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lsm.errors import InvalidRequest
from lsm.gbnf import check_grammar
from lsm.values import SAMPLERS, Sampling

Params = Mapping[str, Any]
Step = tuple[str, Params]  # (sampler, its parameters)

SEED_RANDOM = 0xFFFFFFFF  # llama.cpp's name for: draw one

_FLOATS = (
    "temperature", "top_p", "min_p", "top_n_sigma", "typical_p", "xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent",
    "repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta",
    "adaptive_target", "adaptive_decay",
)  # fmt: skip
_COUNTS = ("top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_keep")
_LOOK_BACK = ("repeat_last_n", "dry_penalty_last_n")
INT32_MAX = 2**31 - 1
# llama.cpp compares each breaker with every token of the vocabulary while nothing else is decoded: a second each for a large one.
MAX_BREAKERS = 16
MAX_BREAKER_BYTES = 256
# With these in the chain the most probable token may be taken away before the temperature is applied.
_MAY_DROP_THE_BEST = frozenset({"typ_p", "xtc", "infill"})
LARK_MARK = "%llguidance"
_CHANGE_LOGITS = frozenset({"penalties", "dry"})


def check(sampling: Sampling, n_vocab: int) -> None:
    """Raise `InvalidRequest`, naming the field, for what no sampler can be made of."""
    for name in _FLOATS:
        if not math.isfinite(getattr(sampling, name)):
            raise InvalidRequest("must be a finite number", name)
    for name in _COUNTS:
        if not 0 <= getattr(sampling, name) <= INT32_MAX:
            raise InvalidRequest(f"must be between 0 and {INT32_MAX}", name)
    if sampling.repeat_penalty <= 0:
        raise InvalidRequest("must be greater than 0", "repeat_penalty")
    if not 0 <= sampling.adaptive_decay <= 0.99:
        raise InvalidRequest("must be between 0 and 0.99", "adaptive_decay")
    if sampling.n_probs is not None and not 0 <= sampling.n_probs <= INT32_MAX:
        raise InvalidRequest(f"must be between 0 and {INT32_MAX}", "n_probs")
    if sampling.mirostat not in (0, 1, 2):
        raise InvalidRequest("must be 0, 1 or 2", "mirostat")
    if not -1 <= sampling.seed <= SEED_RANDOM:
        raise InvalidRequest(f"must be between 0 and {SEED_RANDOM}, or -1 for a random one", "seed")
    for name in sampling.samplers:
        if name not in SAMPLERS:
            raise InvalidRequest(f"no sampler is called {name!r}; there are {', '.join(SAMPLERS)}", "samplers")
    _check_breakers(sampling)
    for token, bias in sampling.logit_bias:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(f"token {token} is not in the vocabulary of {n_vocab} tokens", "logit_bias")
        if math.isnan(bias) or bias == math.inf:
            raise InvalidRequest(f"the bias of token {token} must be a number, or -inf to forbid it", "logit_bias")
    if sampling.grammar and sampling.json_schema:
        raise InvalidRequest("cannot be used together with json_schema: leave one of them out", "grammar")
    if sampling.grammar_lazy and (sampling.json_schema or is_lark(sampling)):
        raise InvalidRequest("goes with a grammar in GBNF: a schema, or Lark, rules from the beginning", "grammar_lazy")
    if sampling.grammar and not is_lark(sampling):
        _check_grammar(sampling.grammar)


def is_lark(sampling: Sampling) -> bool:
    """Whether `grammar` is not GBNF, but what llguidance reads."""
    return sampling.grammar.startswith(LARK_MARK)


def of_choice(sampling: Sampling, index: int) -> Sampling:
    """The same for the choice with this index: a given seed is counted up, so that choices differ and can be had again one by one."""
    if not index or sampling.seed in (-1, SEED_RANDOM):
        return sampling
    return replace(sampling, seed=(sampling.seed + index) % SEED_RANDOM)


def within_context(sampling: Sampling, n_ctx: int) -> Sampling:
    """The same with nothing looking back further than a slot of `n_ctx` tokens can reach: room is taken for all of it."""
    return replace(sampling, **{name: min(getattr(sampling, name), n_ctx) for name in _LOOK_BACK})


def chain(sampling: Sampling, eog_tokens: Sequence[int], seed: int, suppressed: Sequence[int] = ()) -> tuple[Step, ...]:
    """The samplers in the order of their use; the last one draws the token.

    `eog_tokens`: the tokens that end a generation, forbidden by `ignore_eos`.  `seed`: a uint32, drawn by the caller where the request asks
    for a random one.  `suppressed`: tokens that the model must never give.  The grammar is not part of the chain: the native sampler
    keeps it beside it.
    """
    forbidden = (*(eog_tokens if sampling.ignore_eos else ()), *suppressed)
    biases = (*sampling.logit_bias, *((token, -math.inf) for token in forbidden))
    start: list[Step] = [("logit_bias", {"bias": biases})] if biases else []
    if sampling.mirostat:
        return (*start, *_mirostat(sampling, seed))
    steps = [step for name in sampling.samplers if name != "adaptive_p" for step in _active(name, sampling, seed)]
    if "adaptive_p" in sampling.samplers:
        return (*start, *steps, ("adaptive_p", {"target": sampling.adaptive_target, "decay": sampling.adaptive_decay, "seed": seed}))
    if _is_greedy(steps, sampling):
        return (*start, *(step for step in steps if step[0] in _CHANGE_LOGITS), ("greedy", {}))
    return (*start, *steps, ("dist", {"seed": seed}))


def looks_back(steps: Sequence[Step]) -> int:
    """How many of the latest tokens these samplers look at; 0: they need not be told of the prompt."""
    return max((params["last_n"] for name, params in steps if name in _CHANGE_LOGITS), default=0)


def _check_breakers(sampling: Sampling) -> None:
    breakers = sampling.dry_sequence_breakers
    if sampling.dry_multiplier != 0 and not breakers:
        raise InvalidRequest("must be a list of one or more texts", "dry_sequence_breakers")
    if len(breakers) > MAX_BREAKERS:
        raise InvalidRequest(f"has {len(breakers)} texts, at most {MAX_BREAKERS} are possible", "dry_sequence_breakers")
    for text in breakers:
        if "\0" in text or len(_utf8(text, "dry_sequence_breakers")) > MAX_BREAKER_BYTES:
            raise InvalidRequest(f"has a text that is longer than {MAX_BREAKER_BYTES} bytes, or holds a zero byte", "dry_sequence_breakers")


def _check_grammar(grammar: str) -> None:
    _utf8(grammar, "grammar")
    try:
        check_grammar(grammar)
    except ValueError as error:
        raise InvalidRequest(str(error), "grammar") from None


def _utf8(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("has half of a surrogate pair, which is no text", field) from None


def _is_greedy(steps: Sequence[Step], sampling: Sampling) -> bool:
    """Whether the draw can only give the best token: a temperature of 0, and nothing before it that may take the best token away.

    The answer is then the same as that of the whole chain, for a fraction of its work.
    """
    names = [name for name, _ in steps]
    if sampling.post_sampling_probs:  # the whole chain says how likely each token is
        return False
    if "temperature" not in names or sampling.temperature > 0 or sampling.dynatemp_range > 0 or not _MAY_DROP_THE_BEST.isdisjoint(names):
        return False
    n_changing = sum(name in _CHANGE_LOGITS for name in names)
    return all(name in _CHANGE_LOGITS for name in names[:n_changing])


def _mirostat(sampling: Sampling, seed: int) -> tuple[Step, ...]:
    params = {"seed": seed, "tau": sampling.mirostat_tau, "eta": sampling.mirostat_eta}
    temperature = ("temperature", {"t": sampling.temperature})
    return temperature, ("mirostat" if sampling.mirostat == 1 else "mirostat_v2", params)


def _active(name: str, s: Sampling, seed: int) -> tuple[Step, ...]:
    """The sampler, or nothing where its options switch it off."""
    keep = {"min_keep": s.min_keep}
    penalizes = s.repeat_last_n > 0 and (s.repeat_penalty != 1 or s.frequency_penalty != 0 or s.presence_penalty != 0)
    penalties = {
        "last_n": s.repeat_last_n, "repeat": s.repeat_penalty, "frequency": s.frequency_penalty, "presence": s.presence_penalty,
    }  # fmt: skip
    dry = {
        "multiplier": s.dry_multiplier, "base": s.dry_base, "allowed_length": s.dry_allowed_length, "last_n": s.dry_penalty_last_n,
        "breakers": s.dry_sequence_breakers,
    }  # fmt: skip
    xtc = {"probability": s.xtc_probability, "threshold": s.xtc_threshold, "seed": seed} | keep
    temperature = {"t": s.temperature, "range": s.dynatemp_range, "exponent": s.dynatemp_exponent}
    table: dict[str, tuple[bool, dict[str, Any]]] = {
        "penalties": (penalizes, penalties),
        "dry": (s.dry_multiplier != 0 and s.dry_base >= 1 and s.dry_penalty_last_n > 0, dry),
        "top_n_sigma": (s.top_n_sigma > 0, {"n": s.top_n_sigma}),
        "top_k": (s.top_k > 0, {"k": s.top_k}),
        "typ_p": (s.typical_p < 1, {"p": s.typical_p} | keep),
        "top_p": (s.top_p < 1, {"p": s.top_p} | keep),
        "min_p": (s.min_p > 0, {"p": s.min_p} | keep),
        "xtc": (s.xtc_probability > 0 and s.xtc_threshold <= 0.5, xtc),
        "infill": (True, {}),
        "temperature": (s.temperature != 1 or s.dynatemp_range > 0, temperature),
    }
    active, params = table[name]
    return ((name, params),) if active else ()
