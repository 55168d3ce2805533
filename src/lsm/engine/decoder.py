"""The scheduler's ports, over the native room."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lsm.engine import sampling
from lsm.engine.batch import Batch
from lsm.engine.checkpoints import State
from lsm.engine.limits import EmbeddingLimits
from lsm.engine.ports import Sampler
from lsm.native.context import Context
from lsm.native.sampler import Sampler as Chain
from lsm.native.vocab import Tokens, Vocab
from lsm.values import Sampling

log = logging.getLogger("lsm.engine")


class ContextDecoder:
    """`ports.Decoder`, `Embedder` and `SourceReader` over a native context; slots are its sequences."""

    def __init__(self, context: Context) -> None:
        self._context = context
        context.set_embeddings(False)

    def decode(self, batch: Batch, start: int, stop: int, samplers: Sequence[Sampler]) -> tuple[int, Sequence[int]]:
        rows = np.flatnonzero(batch.logits[start:stop]).astype(np.int32)
        chains = [cast(ChainSampler, sampler).chain for sampler in samplers]
        part = slice(start, stop)
        step = self._context.step(batch.tokens[part], batch.pos[part], batch.seq[part], batch.logits[part], rows, chains)
        if not chains:
            self._context.synchronize()  # sampling waits for the device; without it the time would be counted in the next step
        return step.code, step.sampled.tolist() if step.code == 0 else ()

    def embed(self, batch: Batch) -> int:
        part = slice(0, batch.n)
        self._context.set_embeddings(True)
        try:
            no_rows = np.zeros(0, np.int32)
            step = self._context.step(batch.tokens[part], batch.pos[part], batch.seq[part], batch.logits[part], no_rows)
            self._context.synchronize()
        finally:
            self._context.set_embeddings(False)
        return step.code

    def pooled(self, slot: int) -> NDArray[np.float32]:
        return self._context.sequence_embedding(slot)

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._context.embeddings(start, stop)

    def encode(self, tokens: Tokens, slot: int) -> int:
        n = len(tokens)
        return self._context.encode(tokens, np.arange(n, dtype=np.int32), np.full(n, slot, np.int32), np.ones(n, np.int8))

    def seq_rm(self, slot: int, start: int, stop: int) -> bool:
        return self._context.seq_rm(slot, start, stop)

    def save_state(self, slot: int, partial: bool) -> State | None:
        try:
            return self._context.sequence_state(slot, partial=partial)
        except MemoryError:
            log.warning("the host has no memory for a copy of the state of slot %d", slot)
            return None

    def state_size(self, slot: int) -> int:
        return self._context.sequence_state_size(slot)

    def load_state(self, slot: int, state: State, partial: bool) -> bool:
        return self._context.set_sequence_state(slot, state, partial=partial)

    def seq_pos_min(self, slot: int) -> int:
        return self._context.seq_pos_min(slot)


def embedding_limits(context: Context) -> EmbeddingLimits:
    """What must be computed at once: where attention sees what comes later, and where pooling wants more than the last token."""
    last_counts = context.pooling in ("none", "last") or (context.pooling == "rank" and context.is_causal)
    whole = not (context.has_memory and context.is_causal and last_counts)
    return EmbeddingLimits(
        n_ubatch=context.n_ubatch,
        is_pooled=context.pooling != "none",
        is_normalized=context.pooling not in ("none", "rank"),
        whole=whole,
        alone=whole and context.has_memory and not context.kv_unified and context.n_seq_max > 1,
    )


class ChainSampler:
    """`ports.Sampler` over a native chain."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.chain.accept(token, generated=False)

    def close(self) -> None:
        self.chain.close()


def new_sampler(vocab: Vocab, n_ctx_slot: int, options: Sampling) -> tuple[ChainSampler, int]:
    """The sampler, and how many tokens of the prompt it wants to know.  Raises `InvalidRequest`, for a bad grammar among others."""
    is_random = options.seed in (-1, sampling.SEED_RANDOM)
    seed = secrets.randbelow(sampling.SEED_RANDOM) if is_random else options.seed
    steps = sampling.chain(sampling.within_context(options, n_ctx_slot), sorted(vocab.eog), seed)
    return ChainSampler(Chain(vocab, steps, grammar=options.grammar)), sampling.looks_back(steps)
