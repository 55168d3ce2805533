"""Models with an encoder and a decoder: the prompt is read as a whole, then the answer is written from its first token.

A context of llama.cpp remembers one reading, so there is one slot.
"""

from __future__ import annotations

from collections.abc import Callable

from lsm.engine.effects import Effects
from lsm.engine.pool import Pool
from lsm.engine.ports import SourceReader
from lsm.errors import DecodeFailed, InvalidRequest, LsmError


def check_source(n_tokens: int, n_ubatch: int) -> None:
    """Raises `InvalidRequest`: an encoder takes all of a prompt at once."""
    if n_tokens > n_ubatch:
        raise InvalidRequest(
            f"has {n_tokens} tokens; this model reads a prompt at once, up to {n_ubatch} tokens: a larger --ubatch-size lets it take more",
            "prompt",
        )


class SourceSteps:
    def __init__(self, pool: Pool, effects: Effects, reader: SourceReader, clock_ns: Callable[[], int]) -> None:
        self._pool = pool
        self._effects = effects
        self._reader = reader
        self._clock_ns = clock_ns

    def step(self) -> None:
        """Let the encoder read what a request in a slot has not been read of."""
        for slot in list(self._pool.order):
            request = slot.request
            if request is None or request.source is None:
                continue
            source, request.source = request.source, None
            start_ns = self._clock_ns()
            try:
                code = self._reader.encode(source, slot.id)
            except LsmError as error:
                self._effects.fail(request, DecodeFailed(error.message))
                continue
            elapsed_ns = self._clock_ns() - start_ns
            request.prompt_n += len(source)
            request.prompt_ns += elapsed_ns
            self._pool.tally.prompt(len(source), elapsed_ns)
            if code:
                self._effects.fail(request, DecodeFailed(f"Compute error (llama_encode: {code})."))
