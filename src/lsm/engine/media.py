"""Media in prompts: before each batch, the chunks that come next are encoded, and their embeddings go into the cache.

A chunk goes into the cache as a whole, within one step, so nothing can come in between that would leave half of it there.
"""

from __future__ import annotations

from collections.abc import Callable

from lsm.engine.cache import Cache
from lsm.engine.effects import Effects
from lsm.engine.pool import Pool
from lsm.engine.ports import NO_CELL, Decoder, Encoder, Media, Sampler
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.engine.taking import Taking
from lsm.errors import DecodeFailed, LsmError


class MediaSteps:
    def __init__(
        self,
        pool: Pool,
        cache: Cache,
        effects: Effects,
        taking: Taking,
        decoder: Decoder,
        encoder: Encoder,
        clock_ns: Callable[[], int],
    ) -> None:
        self._pool = pool
        self._cache = cache
        self._effects = effects
        self._taking = taking
        self._decoder = decoder
        self._encoder = encoder
        self._clock_ns = clock_ns

    def step(self) -> bool:
        """Encode and decode the chunks that come next.  False: the model cannot decode now, since its encoder was lost."""
        for slot in list(self._pool.order):
            media = _next_media(slot)
            if media is not None and slot.request is not None:
                self._put_in(slot.request, slot, media)
            if self._encoder.is_lost:
                return False
        return True

    def _put_in(self, request: Request, slot: Slot, media: Media) -> None:
        t_start_ns = self._clock_ns()
        try:
            if media.embeddings is None:
                self._encoder.encode(media, self._behind(media))
            if not self._encoder.is_lost:  # else it is encoded, and will be decoded when the weights are back
                self._decode(request, slot, media, t_start_ns)
        except LsmError as error:
            self._effects.fail(request, error)

    def _behind(self, media: Media) -> list[Media]:
        """What could be encoded along with it: everything in the prompts under way that has not been yet."""
        waiting = [other for slot in self._pool.order if slot.request for other in slot.request.media if other.embeddings is None]
        return [other for other in waiting if other is not media]

    def _decode(self, request: Request, slot: Slot, media: Media, t_start_ns: int) -> None:
        span = media.span
        is_last = span.stop == len(request.prompt)
        if slot.machine.state in ("started", "processing_prompt"):
            self._effects.move(slot, "batch", whole=is_last)
        self._cache.adapting.use(request.adapters)
        token = self._decode_rows(slot, media, request.sampler if is_last else None)
        slot.append_media(span, request.prompt[span.start : span.stop])
        self._taking.take_prompt(slot, request, span.n_tokens, self._clock_ns() - t_start_ns, () if token is None else (token,))

    def _decode_rows(self, slot: Slot, media: Media, sampler: Sampler | None) -> int | None:
        """The token that a sampler drew behind the last row.  Raises `LsmError`; then part of the chunk may be in the cache."""
        while True:
            code, token = self._decoder.decode_media(media, slot.id, slot.pos, sampler)
            if code == 0:
                return token
            if code != NO_CELL:
                raise DecodeFailed(f"Compute error (llama_decode: {code}).")
            if not self._cache.clear_idle():
                raise DecodeFailed("Context size has been exceeded.")
            if not self._decoder.seq_rm(slot.id, slot.pos, -1):  # what had found room before
                raise DecodeFailed("Context size has been exceeded.")


def _next_media(slot: Slot) -> Media | None:
    request = slot.request
    if request is None or not slot.wants_prompt:
        return None
    return next((media for media in request.media if media.span.start == slot.n), None)
