"""Whether tokens mean the same to two models."""

from __future__ import annotations

from lsm.native.vocab import Vocab

MAX_DIFFERENCE = 128  # of the sizes: some models have more unused tokens at the end than others of their family
FIRST_COMPARED = 5  # the special tokens before it are written differently in files of one family


def mismatch(target: Vocab, draft: Vocab) -> str:
    """Why guesses of a model with the vocabulary `draft` cannot be verified by one with `target`; empty: they can."""
    if target.type != draft.type:
        return "its tokenizer is of another type"
    for name in ("bos", "eos"):
        adds = getattr(target, f"add_{name}"), getattr(draft, f"add_{name}")
        if adds[0] != adds[1]:
            return f"one of the two models adds {name.upper()} to prompts, the other does not"
        if adds[0] and getattr(target, name) != getattr(draft, name):
            return f"its {name.upper()} token is {getattr(draft, name)}, that of the model is {getattr(target, name)}"
    if abs(target.n_tokens - draft.n_tokens) > MAX_DIFFERENCE:
        return f"it has {draft.n_tokens} tokens, the model has {target.n_tokens}; they may differ by {MAX_DIFFERENCE}"
    for token in range(FIRST_COMPARED, min(target.n_tokens, draft.n_tokens)):
        if target.text(token) != draft.text(token):
            return f"token {token} is {draft.text(token)!r}, that of the model is {target.text(token)!r}"
    return ""
