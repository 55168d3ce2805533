"""A slot: one sequence of the KV cache, the tokens it holds, and the request that uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from lsm.engine.batch import Work
from lsm.engine.checkpoints import Checkpoint, Checkpoints
from lsm.engine.ports import OwnedInstance
from lsm.engine.prefix import Candidate, Tokens
from lsm.engine.prompt import Span, position, text_end
from lsm.engine.prompt_cache import Held, Scales
from lsm.engine.request import Request
from lsm.values import SlotInfo

TOKENS_AT_START = 512


class Slot:
    """`tokens` are those in the cache: what a decode has confirmed, and nothing else."""

    def __init__(self, id: int, n_ctx: int, machine: OwnedInstance, way_back: OwnedInstance) -> None:
        self.id = id
        self.n_ctx = n_ctx
        self.machine = machine
        self.way_back = way_back  # moved by `Rewinding`, who also keeps the snapshots
        self.checkpoints: Checkpoints = ()
        self.request: Request | None = None
        self.put_away: Held | None = None  # what it held until that went into host memory, if nothing was in it since
        self.previous: Request | None = None  # the last that was here, which has ended
        self.last_used = 0
        self.sharers = {id}  # slots that share cells of the cache with this one, itself among them
        self.n = 0
        self.mark: Checkpoint | None = None  # where the memory was before the batch with guesses
        self.spans: tuple[Span, ...] = ()  # the media among the tokens
        self.adapters: Scales | None = ()  # the scales of the LoRA adapters that made it; None: several did
        self._tokens: Tokens = np.zeros(min(TOKENS_AT_START, n_ctx), np.int32)

    @property
    def tokens(self) -> Tokens:
        """Shape (n,), int32; a view."""
        return self._tokens[: self.n]

    @property
    def held(self) -> Held:
        return Held(self.tokens, self.spans, self.adapters)

    @property
    def is_full(self) -> bool:
        """Whether no position would be left after the token that was sampled last."""
        return self.n + 1 >= self.n_ctx

    def append(self, tokens: Tokens) -> None:
        end = self.n + len(tokens)
        assert end <= self.n_ctx, f"slot {self.id}: {end} tokens in a context of {self.n_ctx}"
        if end > len(self._tokens):
            grown = np.zeros(min(self.n_ctx, max(end, 2 * len(self._tokens))), np.int32)
            grown[: self.n] = self.tokens
            self._tokens = grown
        self._tokens[self.n : end] = tokens
        self.n = end

    def append_token(self, token: int) -> None:
        if self.n == len(self._tokens):
            return self.append(np.array([token], np.int32))
        self._tokens[self.n] = token
        self.n += 1

    def fill(self, tokens: Tokens, spans: tuple[Span, ...]) -> None:
        """The memory holds this now, and nothing else."""
        self.keep(0)
        self.append(tokens)
        self.spans = spans

    def keep(self, n: int) -> None:
        """Forget all but the first `n` tokens, which end no media chunk half way."""
        assert 0 <= n <= self.n
        self.n = n
        if not n:
            self.sharers.discard(self.id)
            self.sharers = {self.id}
        self.spans = tuple(span for span in self.spans if span.stop <= n)

    def append_media(self, span: Span, placeholders: Tokens) -> None:
        """The embeddings of a chunk are in the cache."""
        assert span.start == self.n
        self.append(placeholders)
        self.spans = (*self.spans, span)

    @property
    def pos(self) -> int:
        """The position of the next token."""
        return position(self.n, self.spans) if self.spans else self.n

    @property
    def last_pos(self) -> int:
        """The position of the last token; -1: there is none."""
        is_moment = any(span.stop == self.n and span.is_moment for span in self.spans[-1:])
        return self.pos - (self.spans[-1].n_pos if is_moment else 1)

    def move(self, start: int, n: int, to: int) -> None:
        """What is at `start` is at `to` now; `n` tokens, towards the beginning."""
        self._tokens[to : to + n] = self._tokens[start : start + n].copy()

    @property
    def wants_prompt(self) -> bool:
        """Whether more of a prompt is to be decoded here."""
        return self.request is not None and self.request.sampled is None and self.machine.state != "wait_other"

    def work(self) -> Work:
        """What comes next of the prompt: the rest of it, up to the next media."""
        request = self.request
        assert request is not None and request.sampled is None
        n_prompt = len(request.prompt)
        end = text_end(self.n, n_prompt, request.spans)
        return Work(self.id, self.pos, request.prompt[self.n : end], request.wants_tokens and end == n_prompt)

    def close(self) -> None:
        self.machine.close()
        self.way_back.close()

    def candidate(self) -> Candidate:
        return Candidate(self.id, self.tokens, self.last_used)

    def info(self, *, is_speculative: bool) -> SlotInfo:
        """May be read by another thread: the numbers are each right, but may be of two neighbouring steps."""
        request = self.request or self.previous
        return SlotInfo(
            id=self.id,
            n_ctx=self.n_ctx,
            state=self.machine.state,
            request_id=request.id if request else "",
            n_prompt_tokens=len(request.prompt) if request else 0,
            n_prompt_tokens_processed=request.prompt_n if request else 0,
            n_prompt_tokens_cache=request.cache_n if request else 0,
            n_decoded=request.predicted_n if request else 0,
            has_new_line=request.has_new_line if request else False,
            options=request.options if request else None,
            is_speculative=is_speculative,
            prompt=cast(Sequence[int], request.prompt) if request else (),
            written=request.written if request else (),
        )
