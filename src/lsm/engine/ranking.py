"""What a reranker reads: a query and a document in one prompt.  Pure."""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np

from lsm.engine.prefix import Tokens


class RankVocabulary(Protocol):
    bos: int | None
    eos: int | None
    sep: int | None
    add_bos: bool
    add_eos: bool
    add_sep: bool

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> Tokens: ...


def rank_prompt(vocab: RankVocabulary, template: str, query: str, document: str) -> Tokens:
    """Shape (n,), int32.

    template: the model's own, with `{query}` and `{document}` in it; empty: the two texts, with the special tokens around and between
    them that the vocabulary adds.
    """
    if template:
        texts = {"{query}": query, "{document}": document}
        return vocab.tokenize(re.sub(r"\{query\}|\{document\}", lambda match: texts[match[0]], template), False, True)
    end = vocab.sep if vocab.eos is None else vocab.eos
    parts = [
        _token(vocab.bos, vocab.add_bos),
        vocab.tokenize(query, False, False),
        _token(end, vocab.add_eos),
        _token(vocab.sep, vocab.add_sep),
        vocab.tokenize(document, False, False),
        _token(end, vocab.add_eos),
    ]
    return np.concatenate(parts)


def _token(token: int | None, is_added: bool) -> Tokens:
    return np.array([token] if is_added and token is not None else [], np.int32)
