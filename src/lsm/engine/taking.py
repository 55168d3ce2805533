"""What a decoded batch means for the requests in it: more of the prompt is in the cache, or a token of the answer is there."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.engine.batch import Batch, Share
from lsm.engine.cache import Cache
from lsm.engine.effects import Effects
from lsm.engine.outputs import Piece, Prefilled
from lsm.engine.pool import Pool
from lsm.engine.ports import Vocabulary
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.engine.speculation.speculation import Speculation
from lsm.errors import DecodeFailed, ServerError

Drawing = tuple[Share, Sequence[Request]]


class Taking:
    def __init__(self, pool: Pool, cache: Cache, effects: Effects, vocab: Vocabulary, speculation: Speculation | None = None) -> None:
        self._pool = pool
        self._moving = cache.moving
        self._rewinding = cache.rewinding
        self._speculation = speculation
        self._effects = effects
        self._vocab = vocab

    def take(self, batch: Batch, draws: Sequence[Drawing], sampled: Sequence[Sequence[int]], elapsed_ns: int) -> None:
        """`draws`: the shares, and who draws a token in each (`Pool.drawing`); `sampled`: their tokens, in order (`Decoder.decode`)."""
        self._pool.tally.decoded(n_slots=len(draws))
        tokens = iter(sampled)
        for share, drawing in draws:
            own = [next(tokens) for _ in drawing]
            if self._pool.slots[share.slot].request is not None:  # else another choice of its job has failed it just now
                self._take_share(batch, share, elapsed_ns, own)

    def _take_share(self, batch: Batch, share: Share, elapsed_ns: int, sampled: Sequence[Sequence[int]]) -> None:
        slot, request = self._pool.slots[share.slot], self._pool.request(share)
        if request.sampled is None:
            slot.append(batch.tokens[share.start : share.stop])
            self.take_prompt(slot, request, share.stop - share.start, elapsed_ns, [run[0] for run in sampled])
        else:
            request.predicted_ns += elapsed_ns
            self._pool.tally.predicted_ns += elapsed_ns
            if share.stop - share.start > 1 or len(request.pending):
                self._take_long(slot, request, batch, share, sampled)
            else:
                slot.append_token(request.sampled)
                self._note_length(slot)
                self._take_token(request, slot, sampled[0][0], is_last=True)

    def _take_long(self, slot: Slot, request: Request, batch: Batch, share: Share, sampled: Sequence[Sequence[int]]) -> None:
        """More than the token sampled last: with guesses behind it, or with what had left the cache with earlier ones before it."""
        slot.append(batch.tokens[share.start : share.stop])
        if not share.output:
            request.pending = request.pending[share.stop - share.start :]
            return
        request.pending = request.pending[:0]
        if self._verify(slot, request, share, sampled[0]):
            self._note_length(slot)
            self._take_run(slot, request, sampled[0])

    def _verify(self, slot: Slot, request: Request, share: Share, run: Sequence[int]) -> bool:
        """Take wrong guesses back out of the cache.  False: the request has failed."""
        if not share.n_drafted:
            return True
        assert self._speculation is not None
        n_accepted = len(run) - 1
        self._speculation.verified(slot, share.n_drafted, n_accepted)
        request.pending = self._rewinding.take_back(slot, share.n_drafted - n_accepted)
        if len(request.pending) and request.pending.min() < 0:  # images and sounds would have to be decoded again
            self._effects.fail(request, DecodeFailed("The memory cannot go back, and holds media."))
            return False
        return True

    def _take_run(self, slot: Slot, request: Request, run: Sequence[int]) -> None:
        for i, token in enumerate(run):
            self._take_token(request, slot, token, is_last=i == len(run) - 1)
            if slot.request is not request:
                return

    def take_prompt(self, slot: Slot, request: Request, n_rows: int, elapsed_ns: int, sampled: Sequence[int]) -> None:
        """`n_rows` more of the prompt are in the slot; at its end there are the first tokens of the answer and of its other choices."""
        request.prompt_n += n_rows
        request.prompt_ns += elapsed_ns
        self._pool.tally.prompt(n_rows, elapsed_ns)
        self._note_length(slot)
        if request.options.return_progress:
            self._pool.outputs.append(Prefilled(request.id, request.progress()))
        if sampled:
            self._take_first(slot, request, sampled)
        elif slot.n == len(request.prompt) and not request.wants_tokens:
            self._effects.finish(request, slot, "limit", truncated=False)

    def _take_first(self, slot: Slot, request: Request, sampled: Sequence[int]) -> None:
        others = [(other, self._pool.slots[other.slot_id or 0]) for other in self._pool.waiting(request)]
        for _, other_slot in others:
            self._effects.move(other_slot, "share")
        for (drawer, its_slot), token in zip([(request, slot), *others], sampled, strict=True):
            if its_slot.request is drawer:  # else another choice could draw nothing, and has failed them all
                self._take_token(drawer, its_slot, token, is_last=True)

    def _note_length(self, slot: Slot) -> None:
        if slot.n > self._pool.tally.tokens_max:
            self._pool.tally.tokens_max = slot.n

    def _take_token(self, request: Request, slot: Slot, token: int, is_last: bool) -> None:
        """`is_last`: of the tokens that a batch gave; the slot holds what comes before it."""
        sampler = request.sampler
        assert sampler is not None
        if token < 0:
            return self._effects.fail(request, ServerError(sampler.failure))
        if request.sampled is None:
            self._effects.move(slot, "sampled")
            self._effects.advance(request, "first_token")
        self._pool.tally.predicted_tokens += 1
        special = request.options.special
        text = request.take(token, self._vocab.piece(token, special or sampler.shows(token)), sampler.probs(token, special))
        if text is not None:
            self._pool.outputs.append(Piece(request.id, text))
        has_new_line = text is not None and "\n" in text.text
        request.has_new_line |= has_new_line
        stop_type = request.stop_type(self._vocab.is_eog(token), has_new_line)
        if stop_type is not None:
            truncated = request.is_shifted or (stop_type == "limit" and slot.is_full and not self._moving.can_shift_context(slot))
            self._effects.finish(request, slot, stop_type, truncated)
        elif is_last and slot.is_full:
            self._effects.move(slot, "full", shifts=self._moving.can_shift_context(slot))
