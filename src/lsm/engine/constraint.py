"""What an answer must look like: JSON schemas and Lark grammars, compiled by llguidance for one vocabulary.

A token is asked about when it has been drawn, as llama-server does it: that takes 2 us, and almost always the model was right.  Only where
it was not is the mask of all permitted tokens made, 10 us to 10 ms.  Compiling is bounded in time and memory by llguidance's own fuel, and
still may take a quarter of a second, the first one for a vocabulary some seconds: `Grammars.compile` is for any thread.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from lsm.engine.grammars import grammar_of_lark, grammar_of_schema, mistake_of
from lsm.errors import InvalidRequest, NotSupported, ServerError
from lsm.native.vocab import Tokens, Vocab

MAX_TEXT_BYTES = 1 << 20
MAX_ERROR = 1_000  # characters of llguidance's words
MAX_KEPT = 64  # compiled ones, least recently used first out
# Fuel is what llguidance counts its work in: by its own figures 7 ms of a mask, for which the other requests of the batch wait.
LIMITS = LLParserLimits(step_lexer_fuel=100_000, verbose_errors=False)

Source = tuple[str, str]  # (field of the request, text): ("json_schema", ...) or ("grammar", ...)


class Constraint:
    """The constraint of one answer.  `buffer`: for masks; its content counts until the next one is made."""

    def __init__(self, matcher: LLMatcher, eog: frozenset[int], buffer: Tokens) -> None:
        self._matcher = matcher
        self._eog = eog
        self._buffer = buffer

    @property
    def is_complete(self) -> bool:
        """Whether only the end can follow."""
        return bool(self._matcher.is_stopped())

    def permits(self, token: int) -> bool:
        if self._matcher.is_stopped():
            return token in self._eog
        return bool(self._matcher.validate_tokens([token]) == 1)

    def mask(self) -> Tokens:
        """((n_vocab + 31) // 32,) int32: bit t % 32 of word t // 32 is set where token t may be next.  `ServerError`: it takes too long."""
        if self._matcher.is_stopped():
            self._check()
            self._buffer[:] = 0
            for token in self._eog:
                self._buffer[token // 32] |= np.int32(np.uint32(1 << token % 32).view(np.int32))
            return self._buffer
        self._matcher.unsafe_compute_mask_ptr(self._buffer.ctypes.data, self._buffer.nbytes)
        self._check()
        return self._buffer

    def take(self, token: int) -> None:
        """The token, a permitted one, is part of the answer."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ServerError(f"the constraint became too complex: {self._matcher.get_error()}")


class Grammars:
    """The compiled constraints of one vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[Source, LLMatcher] = OrderedDict()
        self._buffer = np.zeros((vocab.n_tokens + 31) // 32, np.int32)

    def is_compiled(self, source: Source) -> bool:
        return source in self._compiled

    def compile(self, source: Source) -> LLMatcher:
        """Raises `InvalidRequest`, with llguidance's words and, for a schema, the path to what it means."""
        with self._lock:
            if source in self._compiled:
                self._compiled.move_to_end(source)
            else:
                self._compiled[source] = self._compile(source)
                if len(self._compiled) > MAX_KEPT:
                    self._compiled.popitem(last=False)
            return self._compiled[source]

    def new(self, source: Source) -> Constraint:
        """For one answer.  Raises as `compile` does."""
        return Constraint(self.compile(source).deep_copy(), self._vocab.eog, self._buffer)

    def _compile(self, source: Source) -> LLMatcher:
        field, text = source
        n_bytes = len(text.encode("utf-8", "surrogatepass"))
        if n_bytes > MAX_TEXT_BYTES:
            raise InvalidRequest(f"has {n_bytes} bytes, at most {MAX_TEXT_BYTES} are possible", field)
        matcher = self._match(grammar_of_schema(text) if field == "json_schema" else grammar_of_lark(text))
        if matcher.is_error():
            words = mistake_of(text, self._error) if field == "json_schema" else ""
            raise InvalidRequest(words or matcher.get_error().strip()[:MAX_ERROR], field)
        matcher.deep_copy().compute_bitmask()  # the first mask is the slowest: what it needs is remembered for all copies
        return matcher

    def _match(self, grammar: str) -> LLMatcher:
        if self._tokenizer is None:
            self._tokenizer = _tokenizer(self._vocab)
        return LLMatcher(self._tokenizer, grammar, limits=LIMITS, log_level=0)

    def _error(self, grammar: str) -> str:
        return str(self._match(grammar).get_error()).strip()[:MAX_ERROR]


class _Tokens:
    """What llguidance wants to know of a vocabulary.  Marks for the model begin with a byte that no text has."""

    def __init__(self, vocab: Vocab) -> None:
        self.eos_token_id = min(vocab.eog) if vocab.eos is None else vocab.eos
        self.bos_token_id = vocab.bos
        self.tokens = [(b"\xff" if vocab.is_control(token) else b"") + vocab.piece(token) for token in range(vocab.n_tokens)]

    def __call__(self, text: bytes) -> list[int]:
        raise NotSupported("only who forces texts would need their tokens: grammars here say no_forcing")


def _tokenizer(vocab: Vocab) -> LLTokenizer:
    """Raises `InvalidRequest`: the model has no token to end with, so nothing could be complete."""
    if not vocab.eog:
        raise InvalidRequest("this model has no token that ends an answer, so none can be complete", "json_schema")
    # Slices would make masks of free text a hundred times as fast, and this call, which lets no other Python run, three times as slow.
    return LLTokenizer(TokenizerWrapper(_Tokens(vocab)), n_vocab=vocab.n_tokens, eos_token=sorted(vocab.eog), slices=[])
