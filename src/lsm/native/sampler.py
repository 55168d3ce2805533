"""How a token is drawn from logits: a chain of llama.cpp's samplers and, beside it, a grammar."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from lsm.errors import InvalidRequest
from lsm.native.checks import check, message_buffer
from lsm.native.dry import new_dry
from lsm.native.grammar import new_grammar
from lsm.native.library import ffi, lib
from lsm.native.vocab import Tokens, Vocab

__all__ = ["SAMPLER_NAMES", "Sampler"]

Params = Mapping[str, Any]
Step = tuple[str, Params]


def _penalties(vocab: Vocab, p: Params) -> Any:
    repeat = float(p.get("repeat", 1.0))
    if not (math.isfinite(repeat) and repeat > 0.0 and math.isfinite(1.0 / repeat)):
        raise InvalidRequest("must be finite and greater than 0", "repeat_penalty")
    frequency, presence = float(p.get("frequency", 0.0)), float(p.get("presence", 0.0))
    for field, value in (("frequency_penalty", frequency), ("presence_penalty", presence)):
        if not math.isfinite(value):
            raise InvalidRequest("must be finite", field)
    return lib.llama_sampler_init_penalties(vocab.n_tokens, int(p.get("last_n", 64)), repeat, frequency, presence)


def _logit_bias(vocab: Vocab, p: Params) -> Any:
    pairs = [(int(token), float(bias)) for token, bias in p["bias"]]
    for token, _ in pairs:
        if not 0 <= token < vocab.n_tokens:
            raise InvalidRequest(f"token {token} is not in the vocabulary (0 to {vocab.n_tokens - 1})", "logit_bias")
    return lib.llama_sampler_init_logit_bias(vocab.n_tokens, len(pairs), ffi.new("llama_logit_bias[]", pairs))


def _temperature(_: Vocab, p: Params) -> Any:
    """At or below 0 only the most probable token is left, so that the closing `dist` is greedy."""
    return lib.llama_sampler_init_temp_ext(float(p.get("t", 0.8)), float(p.get("range", 0.0)), float(p.get("exponent", 1.0)))


def _min_keep(p: Params) -> int:
    return max(0, int(p.get("min_keep", 0)))


def _seed(p: Params) -> int:
    """llama.cpp's 32 bits; -1 becomes its mark for "random"."""
    return int(p.get("seed", -1)) & 0xFFFFFFFF


_BUILDERS: dict[str, Callable[[Vocab, Params], Any]] = {
    "logit_bias": _logit_bias,
    "penalties": _penalties,
    "dry": new_dry,
    "top_n_sigma": lambda _, p: lib.llama_sampler_init_top_n_sigma(float(p["n"])),
    "top_k": lambda _, p: lib.llama_sampler_init_top_k(int(p["k"])),
    "typ_p": lambda _, p: lib.llama_sampler_init_typical(float(p["p"]), _min_keep(p)),
    "top_p": lambda _, p: lib.llama_sampler_init_top_p(float(p["p"]), _min_keep(p)),
    "min_p": lambda _, p: lib.llama_sampler_init_min_p(float(p["p"]), _min_keep(p)),
    "xtc": lambda _, p: lib.llama_sampler_init_xtc(float(p["probability"]), float(p["threshold"]), _min_keep(p), _seed(p)),
    "temperature": _temperature,
    "infill": lambda vocab, _: lib.llama_sampler_init_infill(vocab.handle),
    "dist": lambda _, p: lib.llama_sampler_init_dist(_seed(p)),
    "greedy": lambda _, __: lib.llama_sampler_init_greedy(),
    "adaptive_p": lambda _, p: lib.llama_sampler_init_adaptive_p(float(p["target"]), float(p["decay"]), _seed(p)),
    "mirostat": lambda vocab, p: lib.llama_sampler_init_mirostat(vocab.n_tokens, _seed(p), float(p["tau"]), float(p["eta"]), 100),
    "mirostat_v2": lambda _, p: lib.llama_sampler_init_mirostat_v2(_seed(p), float(p["tau"]), float(p["eta"])),
}

SAMPLER_NAMES = frozenset(_BUILDERS)
CHOOSERS = frozenset({"dist", "greedy", "adaptive_p", "mirostat", "mirostat_v2"})


class Observed:
    """What the last choice of a sampler leaves: filled anew by each one."""

    def __init__(self, n: int, after_chain: bool) -> None:
        self._tokens, self._values = np.empty(n, np.int32), np.empty(n, np.float32)
        self._keep = ffi.from_buffer("int32_t[]", self._tokens), ffi.from_buffer("float[]", self._values)
        self.handle = ffi.new("struct lsm_probabilities *", (n, after_chain, 0, 0.0, *self._keep))

    @property
    def is_log(self) -> bool:
        return not self.handle.after_chain

    @property
    def chosen(self) -> float:
        """The logarithm of the chosen token's probability in the model; with `after_chain` its probability after the chain."""
        return float(self.handle.chosen)

    @property
    def top(self) -> list[tuple[int, float]]:
        """(token, the same of it), the likeliest first."""
        n = self.handle.n
        return list(zip(self._tokens[:n].tolist(), self._values[:n].tolist(), strict=True))


class Sampler:
    """A chain in the order given. The last step must be one that chooses: dist, greedy, adaptive_p, mirostat or mirostat_v2.

    Steps and their parameters (defaults as llama-server's where there are any):
        logit_bias(bias: pairs of token and bias), penalties(last_n, repeat, frequency, presence),
        dry(multiplier, base, allowed_length, last_n, breakers), top_n_sigma(n), top_k(k), typ_p(p, min_keep), top_p(p, min_keep),
        min_p(p, min_keep), xtc(probability, threshold, min_keep, seed), temperature(t, range, exponent), infill(), dist(seed), greedy(),
        adaptive_p(target, decay, seed), mirostat(tau, eta, seed), mirostat_v2(tau, eta, seed).

    `grammar` is GBNF.  With `triggers` it rules only from the first of them on: a token's id, or a word in the text.

    Raises:
        InvalidRequest: an unknown step, a bad value, or a grammar that is not GBNF.
    """

    def __init__(self, vocab: Vocab, steps: Iterable[Step], *, grammar: str = "", triggers: Sequence[int | str] | None = None) -> None:
        steps = list(steps)
        if not steps or steps[-1][0] not in CHOOSERS:
            raise InvalidRequest(f"the last sampler must be one of {', '.join(sorted(CHOOSERS))}", "samplers")
        rules = new_grammar(vocab, grammar, triggers) if grammar else ffi.NULL
        chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        try:
            for name, params in steps:
                lib.llama_sampler_chain_add(chain, _build(vocab, name, params))
        except BaseException:
            lib.llama_sampler_free(chain)
            lib.llama_sampler_free(rules)
            raise
        self.handle = lib.lsm_sampler_new(chain, rules)
        if not self.handle:
            raise MemoryError
        self._n_tokens = vocab.n_tokens
        self._observed: Observed | None = None

    @property
    def seed(self) -> int:
        """The seed in use: the one given, or the one drawn for -1."""
        return int(lib.lsm_sampler_seed(self.handle))

    def sample(self, context: Any, row: int, *, grammar_first: bool = False, mask: Tokens | None = None) -> int:
        """Choose a token from the logits of this row of the context's last batch; not accepted yet.

        Args:
            mask: ((n_vocab + 31) // 32,) int32; bit t % 32 of word t // 32 is set where token t may be chosen.

        Raises:
            InvalidRequest: the row has no logits.
            ServerError: no token is left to choose.
        """
        token, err = ffi.new("int32_t *"), message_buffer()
        bits = ffi.NULL if mask is None else ffi.from_buffer("int32_t[]", mask)
        check(lib.lsm_sampler_sample(self.handle, context.handle, row, grammar_first, bits, token, err, len(err)), err)
        return int(token[0])

    def defer(self) -> None:
        """From now on `Context.step` does not accept what this sampler chooses: who looks at it may `sample` again, and accepts."""
        lib.lsm_sampler_defer(self.handle, True)

    def observe(self, n: int, *, after_chain: bool) -> Observed:
        """From now on each choice says how likely it was, and which the up to `n` likeliest tokens were."""
        self._observed = Observed(min(n, self._n_tokens), after_chain)
        lib.lsm_sampler_observe(self.handle, self._observed.handle)
        return self._observed

    @property
    def observed(self) -> list[tuple[int, float]]:
        """`Observed.top` of the last choice; `observe` was called."""
        assert self._observed is not None
        return self._observed.top

    def offload(self, context: Any, sequence: int) -> bool:
        """Let the device sample for this sequence, as far along the chain as it can, until `Context.end_offload`; at most once.

        False: it cannot, and the processor goes on to sample.
        """
        return bool(lib.lsm_sampler_offload(self.handle, context.handle, sequence))

    def accept(self, token: int, *, generated: bool = True) -> None:
        """The token is part of the text now. Tokens of a prompt (`generated` False) count for penalties, not for the grammar.

        Raises:
            ServerError: the grammar does not permit the token.
        """
        err = message_buffer()
        check(lib.lsm_sampler_accept(self.handle, token, generated, err, len(err)), err)

    def reset(self) -> None:
        """Back to the state before the first accepted token."""
        lib.lsm_sampler_reset(self.handle)

    def clone(self) -> Self:
        """An independent copy in the same state, observed by nobody."""
        copy = object.__new__(type(self))
        copy._n_tokens, copy._observed = self._n_tokens, None
        copy.handle = lib.lsm_sampler_clone(self.handle)
        if not copy.handle:
            raise MemoryError
        return copy

    def close(self) -> None:
        """Idempotent."""
        if self.handle:
            lib.lsm_sampler_free(self.handle)
            self.handle = ffi.NULL

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _build(vocab: Vocab, name: str, params: Params) -> Any:
    builder = _BUILDERS.get(name)
    if builder is None:
        raise InvalidRequest(f"there is no sampler '{name}'; known are {', '.join(sorted(SAMPLER_NAMES))}", "samplers")
    try:
        step = builder(vocab, params)
    except KeyError as missing:
        raise InvalidRequest(f"sampler '{name}' needs {missing}", "samplers") from None
    if not step:
        raise InvalidRequest(f"llama.cpp refuses the parameters of sampler '{name}': {dict(params)}", "samplers")
    return step
