"""A batch through the model, whole or in parts, and what its failures mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lsm.engine.batch import Batch, Share
from lsm.engine.cache import Cache
from lsm.engine.effects import Effects
from lsm.engine.pool import Pool
from lsm.engine.ports import NO_CELL, Decoder, Draw
from lsm.engine.request import Request
from lsm.engine.speculation.speculation import Speculation
from lsm.engine.taking import Taking
from lsm.errors import DecodeFailed, LsmError, ServerError

N_EMPTY_MAX = 3  # batches without a row in a row, though slots are busy
REASONS = {-1: "Invalid input batch.", 2: "The computation was aborted."}


class Decoding:
    def __init__(
        self,
        pool: Pool,
        cache: Cache,
        effects: Effects,
        taking: Taking,
        decoder: Decoder,
        clock_ns: Callable[[], int],
        speculation: Speculation | None = None,
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._effects = effects
        self._taking = taking
        self._decoder = decoder
        self._clock_ns = clock_ns
        self._speculation = speculation
        self._n_empty = 0

    def decode(self, batch: Batch) -> None:
        """Decode the batch, in smaller and smaller parts while the KV cache has no room for a larger one; then all of the rest again.

        Where not even one token finds room, its request fails; the others come again in the next batch, into the room it leaves.
        """
        self._notice_empty(batch)
        start, size = 0, batch.n
        while start < batch.n and self._are_busy(batch.shares_within(start, batch.n)):
            stop = min(start + size, batch.n)
            code = self._part(batch, start, stop)
            if code == 0:
                start, size = stop, batch.n
            elif code == NO_CELL and self._cache.clear_idle():
                continue
            elif code == NO_CELL and batch.drop_drafts():
                size = batch.n
            elif code == NO_CELL and stop - start > 1:
                size = (stop - start) // 2
            elif code == NO_CELL:
                return self._effects.fail_shares(batch.shares_within(start, stop), DecodeFailed("Context size has been exceeded."))
            else:
                return

    def _are_busy(self, shares: list[Share]) -> bool:
        """Whether all these slots still have requests: a choice that failed has taken others along.  The rest comes again."""
        return all(self._pool.slots[share.slot].request is not None for share in shares)

    def _notice_empty(self, batch: Batch) -> None:
        """Busy slots that never want anything decoded would keep the engine busy for nothing, for ever."""
        self._n_empty = 0 if batch.n or not self._pool.order else self._n_empty + 1
        if self._n_empty > N_EMPTY_MAX:
            self._effects.fail_all(ServerError("internal error: the batch stays empty although slots are busy"))

    def _draws(self, batch: Batch, share: Share, start: int, drawing: Sequence[Request]) -> list[Draw]:
        row = share.stop - 1 - share.n_drafted - start
        if not share.n_drafted:
            return [Draw(request.sampler, row) for request in drawing if request.sampler is not None]
        assert self._speculation is not None
        draft = batch.tokens[share.stop - share.n_drafted : share.stop]
        n_forced = self._speculation.n_forced(self._pool.slots[share.slot], draft)
        return [Draw(request.sampler, row, tuple(draft.tolist()), n_forced) for request in drawing if request.sampler is not None]

    def _part(self, batch: Batch, start: int, stop: int) -> int:
        """llama_decode's code.  Any but 0 and NO_CELL has failed the requests in the batch: what is in their sequences is unknown."""
        shares = batch.shares_within(start, stop)
        draws = [(share, self._pool.drawing(share)) for share in shares]
        wanted = [draw for share, drawing in draws for draw in self._draws(batch, share, start, drawing)]
        t_start_ns = self._clock_ns()
        try:
            code, sampled = self._decoder.decode(batch, start, stop, wanted)
        except LsmError as error:
            self._effects.fail_shares(batch.shares, error if isinstance(error, DecodeFailed) else DecodeFailed(error.message))
            return -1
        elapsed_ns = self._clock_ns() - t_start_ns
        if code == 0:
            self._taking.take(batch, draws, sampled, elapsed_ns)
        elif code != NO_CELL:
            self._effects.fail_shares(batch.shares, DecodeFailed(REASONS.get(code, f"Compute error (llama_decode: {code}).")))
        return code
