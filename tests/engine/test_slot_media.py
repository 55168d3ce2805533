"""Media between prompts and slot files (S31), with chunks that nobody made."""

from __future__ import annotations

import numpy as np
import pytest

from lsm.engine.prompt import Span, placeholders
from lsm.engine.slot_file import Damaged
from lsm.engine.slot_media import for_file, from_file
from lsm.errors import InvalidRequest
from lsm.native.media import Chunk


class Scripted(Chunk):
    def save(self) -> bytes:
        return f"{self.id} {self.n_tokens} {self.n_pos}".encode()


def load(data: bytes) -> Chunk:
    if data == b"broken":
        raise InvalidRequest("its media are damaged")
    id, n_tokens, n_pos = data.decode().split()
    return Scripted(None, None, False, id, int(n_tokens), int(n_pos), False, False)


def span(start: int, n_tokens: int, id: str, count: int) -> Span:
    return Span(start, n_tokens, n_tokens, f"{id}/{count}", False, f"{id} {n_tokens} {n_tokens}".encode())


def test_media_come_back_as_they_were() -> None:
    """S31: placeholders and names, several chunks of one image and neighbours too."""
    spans = (span(1, 2, "cat", 1), span(3, 2, "cat", 2), span(6, 1, "dog", 1))
    tokens = np.array([5, *(0,) * 4, 6, 0, 7], np.int32)
    for one in spans:
        tokens[one.start : one.stop] = placeholders(one.id, one.n_tokens)
    written, media = for_file(tokens, spans)
    assert written.tolist() == [5, -1, -1, -1, -1, 6, -1, 7]
    assert media == ((1, b"cat 2 2"), (3, b"cat 2 2"), (6, b"dog 1 1"))
    found, found_spans = from_file(written, media, load)
    assert found.tolist() == tokens.tolist() and found_spans == spans
    assert [one.saved for one in found_spans] == [one.saved for one in spans]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"broken", "are damaged"), (b"cat 3 3", "as large"), (b"cat 1 1", "as large"), (b"cat 2 0", "as large"), (b"cat 2 3", "as large")],
)
def test_media_that_do_not_fit_their_places_are_refused(data: bytes, message: str) -> None:
    """S31: start keys at -1 runs of the right length; no chunk stands at more positions than it has rows."""
    with pytest.raises(Damaged, match=message):
        from_file(np.array([5, -1, -1, 6], np.int32), ((1, data),), load)
