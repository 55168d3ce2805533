"""The prompt of a text with a gap, for models that were trained to fill one.  Pure.

    [REP] project   [SEP] file name, text   ...   [SEP] this file   [PRE] what is before   [SUF] what is after   [MID]

The answer is what goes into the gap.  Where the model has no token for other files, a line of dashes divides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lsm.engine.prefix import Tokens
from lsm.errors import NotSupported
from lsm.values import Infill

WINDOW_TOKENS = 2048  # llama-server's batch, of which it gives three quarters to what is before the gap and one to what is after
PROJECT, THIS_FILE = "myproject\n", "filename\n"  # the names that llama-server gives
DIVIDER = "\n\n--- snippet ---\n\n"
NO_TOKENS = np.zeros(0, np.int32)


class InfillVocabulary(Protocol):
    bos: int | None
    add_bos: bool
    fim_pre: int | None
    fim_suf: int | None
    fim_mid: int | None
    fim_rep: int | None
    fim_sep: int | None

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> Tokens: ...


def check_infill(vocab: InfillVocabulary) -> None:
    """Raises `NotSupported`, naming the tokens that the model does not have."""
    names = {"prefix": vocab.fim_pre, "suffix": vocab.fim_suf, "middle": vocab.fim_mid}
    missing = "".join(f"{name} token is missing. " for name, token in names.items() if token is None)
    if missing:
        raise NotSupported(f"Infill is not supported by this model: {missing}".rstrip())


def infill_prompt(vocab: InfillVocabulary, infill: Infill, n_ctx: int, max_tokens: int, suffix_first: bool) -> Tokens:
    """Shape (n,), int32, with room in a slot of `n_ctx` tokens for an answer of `max_tokens` (-1: no limit).

    The text nearest to the gap is what stays of a long one; other files get what room is left, the last ones before the first.
    Raises `NotSupported`: the model has no tokens for this.
    """
    check_infill(vocab)
    before, after = _plain(vocab, infill.prefix), _plain(vocab, infill.suffix)
    begun = vocab.tokenize(infill.prompt, False, True)
    answer = min(max(max_tokens, 0), n_ctx // 2)
    window = min(WINDOW_TOKENS, n_ctx - answer - 3)  # the special tokens are four, of which the part after the gap counts two
    before = _last(before, 3 * (window // 4))
    after = after[: max(window // 4 - len(begun) - 2, 0)]
    first = np.concatenate([_one(vocab.fim_pre), before, begun])
    second = np.concatenate([_one(vocab.fim_suf), after])
    if suffix_first:
        first, second = second, first
    start = _one(vocab.bos) if vocab.add_bos else NO_TOKENS
    gap = np.concatenate([start, first, second, _one(vocab.fim_mid)])
    room = n_ctx - len(gap) - 2 * answer - 1
    return np.concatenate([_last(_other_files(vocab, infill.extra), max(room, 0)), gap])


def _other_files(vocab: InfillVocabulary, extra: Sequence[tuple[str, str]]) -> Tokens:
    parts = [_one(vocab.fim_rep), _plain(vocab, PROJECT)] if vocab.fim_rep is not None else []
    for name, text in extra:
        divider = [_plain(vocab, DIVIDER)] if vocab.fim_sep is None else [_one(vocab.fim_sep), _plain(vocab, f"{name}\n")]
        parts += [*divider, _plain(vocab, text)]
    if vocab.fim_sep is not None:
        parts += [_one(vocab.fim_sep), _plain(vocab, THIS_FILE)]
    return np.concatenate(parts) if parts else NO_TOKENS


def _plain(vocab: InfillVocabulary, text: str) -> Tokens:
    """What stands in a file is text, whatever special tokens it seems to name."""
    return vocab.tokenize(text, False, False)


def _one(token: int | None) -> Tokens:
    return np.array([token], np.int32)


def _last(tokens: Tokens, n: int) -> Tokens:
    return tokens[max(len(tokens) - n, 0) :]
