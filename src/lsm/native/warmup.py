"""A first computation with almost nothing, so that no request pays for touching memory and for what is made on first use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lsm.errors import ServerError
from lsm.native.context import Context
from lsm.native.library import lib
from lsm.native.model import Model

__all__ = ["warm_up"]


def warm_up(model: Model, context: Context) -> None:
    """All experts of a mixture take part.  The cache is empty afterwards.

    Raises:
        ServerError: the model cannot compute here.
    """
    tokens = [token for token in (model.vocab.bos, model.vocab.eos) if token is not None] or [0]
    lib.llama_set_warmup(context.handle, True)
    try:
        codes = [_encode(context, tokens)] if model.has_encoder else []
        if model.has_decoder:
            codes.append(_decode(context, tokens if model.decoder_start is None else [model.decoder_start]))
    finally:
        lib.llama_set_warmup(context.handle, False)
    context.memory_clear()
    context.synchronize()
    if any(codes):
        raise ServerError(f"the model cannot compute here (llama.cpp: {codes})")


def _encode(context: Context, tokens: Sequence[int]) -> int:
    n = len(tokens)
    return context.encode(np.asarray(tokens, np.int32), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), np.ones(n, np.int8))


def _decode(context: Context, tokens: Sequence[int]) -> int:
    n = len(tokens)
    no_rows = np.zeros(0, np.int32)
    outputs = np.arange(n) >= n - min(n, context.n_outputs_max)  # all of them where embeddings are made
    return context.step(
        np.asarray(tokens, np.int32), np.arange(n, dtype=np.int32), np.zeros(n, np.int32), outputs.astype(np.int8), no_rows
    ).code
