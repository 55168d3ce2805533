"""The sampler of each request, and what is slow to make for it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from lsm.engine import sampling
from lsm.engine.constraint import Grammars, Source
from lsm.engine.decoder import ChainSampler
from lsm.engine.triggers import triggers_of
from lsm.native.dry import is_known, new_dry
from lsm.native.library import lib
from lsm.native.sampler import Sampler as Chain
from lsm.native.vocab import Vocab
from lsm.values import Sampling


class Samplers:
    """Of one loaded model.  `new` is for the engine's thread, `preparation` and what it returns for any.

    After `close` nothing is prepared any more, and nothing is being prepared.
    """

    def __init__(self, vocab: Vocab, n_ctx_slot: int) -> None:
        self._vocab = vocab
        self._n_ctx_slot = n_ctx_slot
        self._grammars = Grammars(vocab)
        self._lock = threading.Lock()
        self._is_closed = False

    def preparation(self, options: Sampling) -> Callable[[], None] | None:
        """What may take seconds and should be done before `new`, if there is something; it raises `InvalidRequest`."""
        source, dry = source_of(options), self._dry(options)
        is_ready = (source is None or self._grammars.is_compiled(source)) and (dry is None or is_known(self._vocab, dry))
        return None if is_ready else lambda: self._prepare(options)

    def _prepare(self, options: Sampling) -> None:
        sampling.check(options, self._vocab.n_tokens)
        with self._lock:
            if self._is_closed:
                return
            if (source := source_of(options)) is not None:
                self._grammars.compile(source)
            if (dry := self._dry(options)) is not None:
                lib.llama_sampler_free(new_dry(self._vocab, dry))

    def new(self, options: Sampling) -> tuple[ChainSampler, int]:
        """The sampler, and how many tokens of the prompt it wants to know.  Raises `InvalidRequest`, for a bad grammar among others."""
        vocab, source = self._vocab, source_of(options)
        is_random = options.seed in (-1, sampling.SEED_RANDOM)
        seed = secrets.randbelow(sampling.SEED_RANDOM) if is_random else options.seed
        steps = sampling.chain(sampling.within_context(options, self._n_ctx_slot), sorted(vocab.eog), seed, vocab.suppressed)
        constraint = None if source is None else self._grammars.new(source)
        gbnf = options.grammar if source is None else ""
        triggers = triggers_of(options, vocab.tokenize) if options.grammar_lazy and gbnf else None
        chain = Chain(vocab, steps, grammar=gbnf, triggers=triggers)
        return ChainSampler(chain, seed, vocab, options, constraint), sampling.looks_back(steps)

    def close(self) -> None:
        """Waits for a preparation that runs: it reads the vocabulary."""
        with self._lock:
            self._is_closed = True

    def _dry(self, options: Sampling) -> sampling.Params | None:
        limited = sampling.within_context(options, self._n_ctx_slot)
        return next((params for name, params in sampling.chain(limited, (), 0) if name == "dry"), None)


def source_of(options: Sampling) -> Source | None:
    """What llguidance is to compile, if it is to."""
    if options.json_schema:
        return "json_schema", options.json_schema
    return ("grammar", options.grammar) if sampling.is_lark(options) else None


def check_defaults(samplers: Samplers, defaults: Sampling, n_tokens: int) -> None:
    """Raises `InvalidRequest`: what each request that relies on them would hear."""
    sampling.check(defaults, n_tokens)
    if defaults.grammar or defaults.json_schema:
        samplers.new(Sampling(grammar=defaults.grammar, json_schema=defaults.json_schema))[0].close()
