"""Batches that give embeddings: whole inputs of several requests at once, one vector for each, or one for each token.

They are batches of their own, since a batch gives either embeddings of all its rows or logits of some.  While there is other work, every
other step is theirs.  What they leave in the cache is what any prompt leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lsm.engine.batch import Batch, Share, Work
from lsm.engine.cache import Cache
from lsm.engine.decoding import NO_CELL, REASONS
from lsm.engine.effects import Effects
from lsm.engine.limits import EmbeddingLimits
from lsm.engine.normalize import normalized
from lsm.engine.outputs import Job
from lsm.engine.pool import Pool
from lsm.engine.ports import Embedder
from lsm.errors import ContextExceeded, DecodeFailed, InvalidRequest, LsmError, NotSupported, ServerError
from lsm.values import Embedding


def check_input(job: Job, limits: EmbeddingLimits | None, n_ctx_slot: int, n_vocab: int) -> None:
    """Raise `NotSupported`, `InvalidRequest`, `ContextExceeded`, or `ServerError` where only the server's settings are in the way."""
    n = len(job.prompt)
    if limits is None:
        raise NotSupported("This server does not support embeddings. Start it with `--embeddings`")
    if not n:
        raise InvalidRequest("must not be empty", "input")
    if job.prompt.min() < 0 or job.prompt.max() >= n_vocab:
        raise InvalidRequest(f"has a token that is not in the vocabulary of {n_vocab} tokens", "input")
    if n > n_ctx_slot:
        raise ContextExceeded(n, n_ctx_slot)
    if limits.whole and n > limits.n_ubatch:
        raise ServerError(
            f"input ({n} tokens) is too large to process. increase the physical batch size (current batch size: {limits.n_ubatch})"
        )


def choose(works: Sequence[Work], limits: EmbeddingLimits) -> list[Work]:
    """What the next batch begins with: in the order given, what finds room as a whole; or simply the first, where each must be alone."""
    if limits.alone:
        return list(works[:1])
    if not limits.whole:
        return list(works)
    chosen, room = [], limits.n_ubatch
    for work in works:
        if len(work.tokens) <= room:
            chosen.append(work)
            room -= len(work.tokens)
    return chosen


class EmbeddingSteps:
    def __init__(
        self, pool: Pool, cache: Cache, effects: Effects, embedder: Embedder, limits: EmbeddingLimits, clock_ns: Callable[[], int]
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._effects = effects
        self._embedder = embedder
        self._limits = limits
        self._clock_ns = clock_ns
        self._batch = Batch(limits.n_ubatch)
        self._had_last_turn = False

    def step(self) -> bool:
        """Whether this step was one for embeddings."""
        slots = [slot for slot in self._pool.order if slot.request is not None and slot.request.embeds]
        adapters = slots[0].request.adapters if slots and slots[0].request else ()
        slots = [slot for slot in slots if slot.request is not None and slot.request.adapters == adapters]
        others_wait = len(slots) < len(self._pool.order)
        self._had_last_turn = bool(slots) and not (others_wait and self._had_last_turn)
        if self._had_last_turn:
            self._cache.adapting.use(adapters)
            self._compute(choose([slot.work() for slot in slots], self._limits))
        return self._had_last_turn

    def _compute(self, works: Sequence[Work]) -> None:
        """Fewer inputs at a time while the KV cache has no room for more; the others come again."""
        batch = self._batch
        batch.fill((), works)
        batch.logits[: batch.n] = 1
        self._pool.announce(batch.shares)
        start_ns = self._clock_ns()
        try:
            code = self._embedder.embed(batch)
        except LsmError as error:
            return self._fail(batch.shares, error.message)
        if code == 0:
            self._take(batch, self._clock_ns() - start_ns)
        elif code == NO_CELL and (self._cache.clear_idle() or len(works) > 1):
            self._compute(works[: -(-len(works) // 2)])
        elif code == NO_CELL:
            self._fail(batch.shares, "Context size has been exceeded.")
        else:
            self._fail(batch.shares, REASONS.get(code, f"Compute error (llama_decode: {code})."))

    def _fail(self, shares: Iterable[Share], message: str) -> None:
        self._effects.fail_shares(shares, DecodeFailed(message))

    def _take(self, batch: Batch, elapsed_ns: int) -> None:
        self._pool.tally.decoded(n_slots=len(batch.shares))
        for share in list(batch.shares):
            slot, request = self._pool.slots[share.slot], self._pool.request(share)
            slot.append(batch.tokens[share.start : share.stop])
            request.prompt_n += share.stop - share.start
            self._pool.tally.prompt(share.stop - share.start, elapsed_ns)
            if not self._limits.is_pooled:
                request.vectors.append(self._embedder.rows(share.start, share.stop))
            if slot.n == len(request.prompt):
                assert request.embed is not None
                vectors = self._embedder.pooled(slot.id)[None] if self._limits.is_pooled else np.concatenate(request.vectors)
                if self._limits.is_normalized:
                    vectors = normalized(vectors, request.embed)
                self._effects.finish_embedding(request, Embedding(vectors=vectors, n_tokens=len(request.prompt)))
