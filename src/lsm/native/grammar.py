"""llama.cpp's own grammars, written in GBNF."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lsm.errors import InvalidRequest
from lsm.native.checks import message_buffer, text_of
from lsm.native.library import ffi, lib
from lsm.native.vocab import Vocab

__all__ = ["new_grammar"]

_SPECIAL = re.compile(r"[.^$|()*+?\[\]{}\\]")


def new_grammar(vocab: Vocab, gbnf: str, triggers: Sequence[int | str] | None) -> Any:
    """A sampler of llama.cpp, the caller's to free.  With `triggers` it rules only from the first of them on: a token's id, or a word.

    Raises:
        InvalidRequest: it is not GBNF.
    """
    err = message_buffer()
    if triggers is None:
        grammar = lib.lsm_sampler_grammar(vocab.handle, gbnf.encode(), err, len(err))
    else:
        words = [ffi.new("char[]", _SPECIAL.sub(r"\\\g<0>", word).encode()) for word in triggers if isinstance(word, str)]
        tokens = [token for token in triggers if not isinstance(token, str)]
        patterns, ids = ffi.new("const char *[]", words), ffi.new("int32_t[]", tokens)
        grammar = lib.lsm_sampler_lazy_grammar(vocab.handle, gbnf.encode(), patterns, len(words), ids, len(tokens), err, len(err))
    if not grammar:
        raise InvalidRequest(f"{text_of(err)}; the log says why", "grammar")
    return grammar
