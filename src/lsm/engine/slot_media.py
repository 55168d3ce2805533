"""Media of a prompt as its spans, and as slot files have them (S31): -1 for each row, and what libmtmd writes of each chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lsm.engine.prefix import Tokens
from lsm.engine.prompt import Span, placeholders
from lsm.engine.slot_file import NO_TOKEN, Damaged, Media
from lsm.errors import InvalidRequest
from lsm.native.media import Chunk


class Spans:
    """Of one prompt, from its beginning.

    One image may be several chunks; all of them have its id, so each is told from the others by how many came before it.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def add(self, start: int, chunk: Chunk) -> Span:
        count = self._seen[chunk.id] = self._seen.get(chunk.id, 0) + 1
        return Span(start, chunk.n_tokens, chunk.n_pos, f"{chunk.id}/{count}", chunk.is_moment, chunk.save())


def for_file(tokens: Tokens, spans: Sequence[Span]) -> tuple[Tokens, Media]:
    """Tokens, shape (n,), int32, -1 where media stand, and the row where each of these begins, with its bytes."""
    return np.maximum(tokens, NO_TOKEN), tuple((span.start, span.saved) for span in spans)


def from_file(tokens: Tokens, media: Media, load: Callable[[bytes], Chunk]) -> tuple[Tokens, tuple[Span, ...]]:
    """The other way round, with placeholders for -1.

    Raises `Damaged`: `load` took one of the media for none (`InvalidRequest`), or has another size than the place that it has.
    """
    rows, names = tokens.copy(), Spans()
    spans: list[Span] = []
    starts = [start for start, _ in media]
    for start, stop, (_, data) in zip(starts, [*starts[1:], len(tokens)], media, strict=True):
        try:
            chunk = load(data)
        except InvalidRequest as error:
            raise Damaged(error.message) from None
        n_rows = int(np.count_nonzero(tokens[start:stop] == NO_TOKEN))
        if not 0 < chunk.n_pos <= chunk.n_tokens == n_rows:
            raise Damaged("its media are not as large as the places that its tokens leave to them")
        spans.append(names.add(start, chunk))
        rows[start : start + n_rows] = placeholders(spans[-1].id, n_rows)
    return rows, tuple(spans)
