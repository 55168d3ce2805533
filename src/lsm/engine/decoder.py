"""The scheduler's ports, over the native room."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lsm.engine.batch import Batch
from lsm.engine.checkpoints import State
from lsm.engine.constraint import Constraint
from lsm.engine.drawing import NO_GUESS, Plan
from lsm.engine.encoder import MediaChunk
from lsm.engine.limits import EmbeddingLimits
from lsm.engine.ports import Draw, Media, Sampler
from lsm.engine.triggers import preserved_tokens
from lsm.errors import LsmError, ServerError
from lsm.native.adapter import Adapter
from lsm.native.context import NOT_REACHED, Context
from lsm.native.media import decode_embeddings
from lsm.native.sampler import Sampler as Chain
from lsm.native.vocab import Tokens, Vocab
from lsm.values import Sampling, TokenProb, TokenProbs

NOTHING = -1  # the sampler found no token that it may choose

log = logging.getLogger("lsm.engine")


class ContextDecoder:
    """`ports.Decoder`, `Embedder` and `SourceReader` over a native context; slots are its sequences."""

    def __init__(self, context: Context, adapters: Sequence[Adapter] = ()) -> None:
        self._context = context
        self._adapters = tuple(adapters)
        context.set_embeddings(False)

    def decode(self, batch: Batch, start: int, stop: int, draws: Sequence[Draw]) -> tuple[int, Sequence[Sequence[int]]]:
        part = slice(start, stop)
        rows_drawn = [draw.row for draw in draws]
        for draw in draws:
            sampler = cast(ChainSampler, draw.sampler)
            if sampler.wants_offload and rows_drawn.count(draw.row) == 1:  # who shares the row of another slot will have its own next time
                sampler.offload(self._context, int(batch.seq[start + draw.row]))
        plan = Plan.of(draws)
        step = self._context.step(
            batch.tokens[part], batch.pos[part], batch.seq[part], batch.logits[part], plan.rows,
            [cast(ChainSampler, sampler).chain for sampler in plan.samplers], drafted=plan.drafted, forced=plan.forced,
        )  # fmt: skip
        if not draws:
            self._context.synchronize()  # sampling waits for the device; without it the time would be counted in the next step
        if step.code != 0:
            return step.code, ()
        sampled: list[int] = step.sampled.tolist()
        return 0, [
            cast(ChainSampler, draw.sampler).settle(self._context, draw, sampled[first : first + n])
            for draw, (first, n) in zip(draws, plan.spans, strict=True)
        ]

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

    def decode_media(self, media: Media, slot: int, pos: int, sampler: Sampler | None) -> tuple[int, int | None]:
        chunk, embeddings, mine = cast(MediaChunk, media).chunk, media.embeddings, cast(ChainSampler | None, sampler)
        assert embeddings is not None, "not encoded"
        if mine is not None and mine.wants_offload:
            mine.offload(self._context, slot)
        positions = chunk.positions(pos).reshape(-1, chunk.n_tokens)
        size = chunk.n_tokens if chunk.non_causal else self._context.n_batch
        token = -1
        for start in range(0, chunk.n_tokens, size):
            part, is_last = slice(start, start + size), start + size >= chunk.n_tokens
            chain = mine.chain if mine is not None and is_last else None
            rows = np.ascontiguousarray(positions[:, part]).reshape(-1)
            code, token = decode_embeddings(self._context, embeddings[part], rows, slot, causal=not chunk.non_causal, sampler=chain)
            if code:
                return code, None
        if mine is None:
            self._context.synchronize()
            return 0, None
        return 0, mine.settle(self._context, Draw(mine, len(embeddings[part]) - 1), [token])[0]

    def set_adapters(self, scales: Sequence[float]) -> None:
        self._context.set_adapters(tuple(zip(self._adapters, scales, strict=True)))

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

    def seq_cp(self, source: int, target: int) -> None:
        self._context.seq_cp(source, target)

    def seq_add(self, slot: int, start: int, stop: int, delta: int) -> None:
        self._context.seq_add(slot, start, stop, delta)

    def seq_pos_min(self, slot: int) -> int:
        return self._context.seq_pos_min(slot)

    def seq_pos_max(self, slot: int) -> int:
        return self._context.seq_pos_max(slot)


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
    """`ports.Sampler` over a native chain, and the constraint beside it."""

    def __init__(self, chain: Chain, seed: int, vocab: Vocab, options: Sampling, constraint: Constraint | None) -> None:
        self.chain = chain
        self.seed = seed
        self.failure = "the samplers leave no token to choose"
        self._vocab = vocab
        self._constraint = constraint
        self._preserved = preserved_tokens(options, vocab.tokenize) if options.preserved_tokens else frozenset()
        tells_logits = options.n_probs is not None and not options.post_sampling_probs
        self.wants_offload = options.backend_sampling and not options.grammar and constraint is None and not tells_logits
        self._offloaded: tuple[Context, int] | None = None
        self._seen: deque[tuple[float, list[tuple[int, float]]]] = deque()  # of each token drawn, until it is told
        self._observed = None if options.n_probs is None else chain.observe(options.n_probs, after_chain=options.post_sampling_probs)
        if constraint is not None:
            chain.defer()

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.chain.accept(token, generated=False)

    def offload(self, context: Context, sequence: int) -> None:
        """The first row with logits comes from the slot that the request keeps."""
        self.wants_offload = False
        if self.chain.offload(context, sequence):
            self._offloaded = context, sequence

    def settle(self, context: Context, draw: Draw, sampled: Sequence[int]) -> list[int]:
        """What stands of the tokens drawn, `sampled`, after the constraint has been asked; see `Decoder.decode`.  `NOTHING`: see `failure`.

        Where somebody has to be asked, or looks, after each token, the step has drawn only the first.
        """
        if self._constraint is None and self._observed is None:
            return [token for token in sampled if token != NOT_REACHED]
        run: list[int] = []
        for i, guess in enumerate((*draw.draft[: draw.n_forced], NO_GUESS)):
            forced = draw.n_forced is not None and i < draw.n_forced
            try:
                token = sampled[0] if i == 0 else self.chain.sample(context, draw.row + i)
                token = self._settle(context, draw.row + i, token, is_first=i == 0, forced=guess if forced else None)
            except LsmError as error:
                self.failure = error.message
                token = NOTHING
            run.append(token)
            if token != guess:
                break
        return run

    def _settle(self, context: Context, row: int, token: int, *, is_first: bool, forced: int | None) -> int:
        constraint = self._constraint
        if constraint is not None and forced is None and (token == NOTHING or not constraint.permits(token)):
            token = self._draw_again(context, row, constraint)
        token = token if forced is None else forced
        if token == NOTHING:
            return token
        if constraint is not None or not is_first:  # else the step has accepted it
            self.chain.accept(token, generated=forced is None)
        if constraint is not None and forced is None:
            constraint.take(token)
        if self._observed is not None:
            self._seen.append((self._observed.chosen, self._observed.top))
        return token

    def _draw_again(self, context: Context, row: int, constraint: Constraint) -> int:
        try:
            return self.chain.sample(context, row, mask=constraint.mask())
        except ServerError:
            if constraint.is_complete and self._vocab.eos is not None:
                return self._vocab.eos  # there is nothing else, whatever biases say
            raise

    def shows(self, token: int) -> bool:
        """Whether the request wants to see this special token as text."""
        return token in self._preserved

    def probs(self, token: int, special: bool) -> tuple[TokenProbs, ...]:
        """How likely the token was, if that was asked for."""
        if self._observed is None:
            return ()
        chosen, likeliest = self._seen.popleft()
        piece = self._vocab.piece
        top = tuple(TokenProb(id, piece(id, special), value) for id, value in likeliest)
        return (TokenProbs(TokenProb(token, piece(token, special), chosen), top, self._observed.is_log),)

    def close(self) -> None:
        if self._offloaded is not None:
            context, sequence = self._offloaded
            context.end_offload(sequence)
            self._offloaded = None
        self.chain.close()
