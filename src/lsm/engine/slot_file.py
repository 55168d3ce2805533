"""llama-server's slot files, byte for byte (S31).  Pure.

    u32 magic "ggsq", u32 version 3, u32 count, count x i32 tokens, then the state of the sequence

The tokens are either plain ids, or a payload: i32 -1, u32 version 1, u32 count, count x i32 (-1 where media stand), u32 number of media, as
many u32 rows where each begins, and for each u32 size and bytes; padded with zeros to 4 bytes.  All numbers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lsm.engine.checkpoints import STATE_HEADER_BYTES, State
from lsm.engine.prefix import Tokens

MAGIC, VERSION = 0x67677371, 3
NO_TOKEN, PAYLOAD_VERSION = -1, 1
HEADER = struct.Struct("<III")
WORD_BYTES = 4

Words = NDArray[np.int32]
Media = tuple[tuple[int, bytes], ...]


class Damaged(Exception):
    """The bytes are no slot file, or not a whole one; the message is the end of a sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """tokens: shape (n,), int32, -1 where media stand.  media: the row where each begins, and what libmtmd wrote of it.

    state: as `Decoder.save_state` gives it, but for the first STATE_HEADER_BYTES, which are not in the file.
    """

    tokens: Tokens
    state: State
    media: Media = ()


def encode(saved: Saved) -> list[bytes | memoryview]:
    """What to write, in order.  The state is not copied."""
    payload = _payload(saved)
    header = HEADER.pack(MAGIC, VERSION, len(payload) // WORD_BYTES)
    return [header, payload, saved.state[STATE_HEADER_BYTES:].data]


def _payload(saved: Saved) -> bytes:
    parts = [
        struct.pack("<iII", NO_TOKEN, PAYLOAD_VERSION, len(saved.tokens)),
        saved.tokens.astype("<i4").tobytes(),
        struct.pack("<I", len(saved.media)),
        *(struct.pack("<I", start) for start, _ in saved.media),
        *(struct.pack("<I", len(chunk)) + chunk for _, chunk in saved.media),
    ]
    payload = b"".join(parts)
    return payload + bytes(-len(payload) % WORD_BYTES)


def count_words(header: bytes, size_bytes: int) -> int:
    """Of the token list in a file of this size that begins with these HEADER.size bytes.  Raises `Damaged`."""
    if len(header) < HEADER.size:
        raise Damaged("it is too short to be a slot file")
    magic, version, n_words = HEADER.unpack(header)
    if magic != MAGIC:
        raise Damaged("it is not a slot file")
    if version != VERSION:
        raise Damaged(f"it has version {version} of the format, not {VERSION}")
    if HEADER.size + n_words * WORD_BYTES > size_bytes:
        raise Damaged(f"it claims {n_words} tokens and ends before the last")
    return int(n_words)


def decode_tokens(words: Words) -> tuple[Tokens, Media]:
    """Tokens and media of a token list, plain or packed.  Raises `Damaged`; nothing is allocated that is not there."""
    if not len(words) or words[0] != NO_TOKEN:
        return words.astype(np.int32), ()
    reader = _Reader(words.astype("<i4").tobytes())
    reader.number()  # the marker
    if (version := reader.number()) != PAYLOAD_VERSION:
        raise Damaged(f"its token list has version {version}, not {PAYLOAD_VERSION}")
    tokens = np.frombuffer(reader.take(reader.number() * WORD_BYTES), "<i4").astype(np.int32)
    starts = np.frombuffer(reader.take(reader.number() * WORD_BYTES), "<u4").tolist()
    media = tuple((start, reader.take(reader.number())) for start in starts)
    if reader.left >= WORD_BYTES:
        raise Damaged("its token list goes on behind its end")
    _check_media(tokens, media)
    return tokens, media


def _check_media(tokens: Tokens, media: Media) -> None:
    """Each begins where no token stands, and every such place belongs to one."""
    starts = [start for start, _ in media]
    places = set(np.flatnonzero(tokens == NO_TOKEN).tolist())
    begins = {place for place in places if place - 1 not in places}
    if starts != sorted(set(starts)) or not begins <= set(starts) <= places or not all(chunk for _, chunk in media):
        raise Damaged("its media are not where its tokens leave room for them")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self) -> int:
        return int.from_bytes(self.take(WORD_BYTES), "little")

    def take(self, size_bytes: int) -> bytes:
        if size_bytes > self.left:
            raise Damaged("its token list ends before its last part")
        self._at += size_bytes
        return self._data[self._at - size_bytes : self._at]
