"""What the scheduler has to keep within."""

from __future__ import annotations

from dataclasses import dataclass

from lsm.engine.checkpoints import Spacing
from lsm.engine.state_shape import StateShape


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLimits:
    n_ubatch: int  # most tokens in one computation
    is_pooled: bool  # one vector for an input, rather than one for each of its tokens
    is_normalized: bool  # scores of a reranker are not
    whole: bool  # an input is computed at once: attention sees what comes later, or the pooling wants all of it
    alone: bool  # one input in a batch: a cache with a part for each sequence would compute its tokens in several goes


@dataclass(frozen=True, slots=True)
class Limits:
    n_slots: int
    n_ctx_slot: int  # prompt and answer of one slot together
    n_batch: int  # most tokens in one step
    n_swa: int  # tokens that sliding layers look back; 0: none slide
    shares_cells: bool  # one KV cache for all slots: an idle one can be cleared to make room
    similarity_min: float = 0.1
    can_trim: bool = True  # the memory can forget the last tokens of a sequence; a recurrent one cannot
    cache_limit_bytes: int | None = 0  # of prompts kept in host memory; 0: none are; None: no limit
    cache_limit_tokens: int = 0  # raised to what fits into the bytes
    cache_idle_slots: bool = False
    state_shape: StateShape | None = None  # what states of this memory look like; None: of a kind that cannot be checked
    spacing: Spacing = Spacing(n_max=0, min_step=0, n_batch=1, n_ubatch=1)
    n_ubatch: int = 512  # most tokens in one computation
    generates: bool = True  # False: the model makes embeddings only
    decoder_start: int | None = None  # an encoder reads the prompt, and the answer begins after this token
    embedding: EmbeddingLimits | None = None  # None: no embeddings are made
    n_adapters: int = 0
    context_shift: bool = False  # a full slot drops its older tokens and goes on, rather than ending the answer
    can_shift: bool = False  # this memory can move tokens to other positions, and forget some in the middle
    adds_bos: bool = False  # prompts start with a token that a shift must keep
    synthetic_rates: tuple[float, ...] = ()  # at which guesses count as right; none: they are verified
    eog: frozenset[int] = frozenset()  # tokens that end an answer, which never count as right
    cont_batching: bool = True  # prompts join batches that have tokens of answers
