"""What wakes a lazy grammar.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lsm.errors import InvalidRequest
from lsm.values import Sampling

MAX_TRIGGERS = 16  # each is looked for in the whole answer, again with each token
MAX_TRIGGER_BYTES = 256

Tokenizer = Callable[[str, bool, bool], Iterable[Any]]  # (text, with BOS, special tokens are read as such)


def triggers_of(options: Sampling, tokenize: Tokenizer) -> tuple[int | str, ...]:
    """Tokens' ids, and words.  A word that is one token wakes the grammar as that token, which must be a preserved one, as in llama-server.

    Raises:
        InvalidRequest: there are none, too many, too long ones, or one that is not preserved.
    """
    triggers = options.grammar_triggers
    if not triggers:
        raise InvalidRequest("must have one or more triggers, for grammar_lazy is set", "grammar_triggers")
    if len(triggers) > MAX_TRIGGERS:
        raise InvalidRequest(f"has {len(triggers)} triggers, at most {MAX_TRIGGERS} are possible", "grammar_triggers")
    preserved = preserved_tokens(options, tokenize)
    return tuple(trigger if isinstance(trigger, int) else _of_word(trigger, preserved, tokenize) for trigger in triggers)


def preserved_tokens(options: Sampling, tokenize: Tokenizer) -> frozenset[int]:
    """Those of `preserved_tokens` that are one token."""
    return frozenset(ids[0] for text in options.preserved_tokens if len(ids := [int(token) for token in tokenize(text, False, True)]) == 1)


def _of_word(word: str, preserved: frozenset[int], tokenize: Tokenizer) -> int | str:
    if not word or "\0" in word or len(word.encode("utf-8", "replace")) > MAX_TRIGGER_BYTES:
        raise InvalidRequest(f"has a word that is empty, longer than {MAX_TRIGGER_BYTES} bytes, or holds a zero byte", "grammar_triggers")
    ids = list(tokenize(word, False, True))
    if len(ids) != 1:
        return word
    if int(ids[0]) not in preserved:
        raise InvalidRequest(f"the word {word!r} is one token, so it must be among preserved_tokens", "grammar_triggers")
    return int(ids[0])
