"""What a decoded batch means for the requests in it: more of the prompt is in the cache, or a token of the answer is there."""

from __future__ import annotations

from collections.abc import Sequence

from lsm.engine.batch import Batch, Share
from lsm.engine.ends import Ends
from lsm.engine.outputs import Piece
from lsm.engine.pool import Pool
from lsm.engine.ports import Vocabulary
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.errors import ServerError


class Taking:
    def __init__(self, pool: Pool, ends: Ends, vocab: Vocabulary) -> None:
        self._pool = pool
        self._ends = ends
        self._vocab = vocab

    def take(self, batch: Batch, shares: Sequence[Share], sampled: Sequence[int], elapsed_ns: int) -> None:
        """`sampled`: a token for each share with an output, in order."""
        self._pool.tally.decoded(n_slots=len(shares))
        tokens = iter(sampled)
        for share in shares:
            self._take_share(batch, share, elapsed_ns, next(tokens) if share.output else None)

    def _take_share(self, batch: Batch, share: Share, elapsed_ns: int, sampled: int | None) -> None:
        slot, request = self._pool.slots[share.slot], self._pool.request(share)
        slot.append(batch.tokens[share.start : share.stop])
        if request.sampled is None:
            self.take_prompt(slot, request, share.stop - share.start, elapsed_ns, sampled)
        else:
            assert sampled is not None
            request.predicted_ns += elapsed_ns
            self._pool.tally.predicted_ns += elapsed_ns
            self._note_length(slot)
            self._take_token(request, slot, int(sampled))

    def take_prompt(self, slot: Slot, request: Request, n_rows: int, elapsed_ns: int, sampled: int | None) -> None:
        """`n_rows` more of the prompt are in the slot, and perhaps the first token of the answer is there."""
        request.prompt_n += n_rows
        request.prompt_ns += elapsed_ns
        self._pool.tally.prompt(n_rows, elapsed_ns)
        self._note_length(slot)
        if sampled is not None:
            self._take_token(request, slot, int(sampled))
        elif slot.n == len(request.prompt) and not request.wants_tokens:
            self._ends.finish(request, slot, "limit", truncated=False)

    def _note_length(self, slot: Slot) -> None:
        self._pool.tally.tokens_max = max(self._pool.tally.tokens_max, slot.n)

    def _take_token(self, request: Request, slot: Slot, token: int) -> None:
        sampler = request.sampler
        assert sampler is not None
        if token < 0:
            return self._ends.fail(request, ServerError(sampler.failure))
        if request.sampled is None:
            slot.machine.fire("sampled")
            self._ends.advance(request, "first_token")
        self._pool.tally.predicted_tokens += 1
        special = request.options.special
        text = request.take(token, self._vocab.piece(token, special or sampler.shows(token)), sampler.probs(token, special))
        if text is not None:
            self._pool.outputs.append(Piece(request.id, text))
        has_new_line = text is not None and "\n" in text.text
        request.has_new_line |= has_new_line
        stop_type = request.stop_type(self._vocab.is_eog(token), slot.is_full, has_new_line)
        if stop_type is not None:
            self._ends.finish(request, slot, stop_type, truncated=stop_type == "limit" and slot.is_full)
