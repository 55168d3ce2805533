"""The bytes of llama-server's slot files (S31): both ways, and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.slot_file import HEADER, Damaged, Saved, count_words, decode_tokens, encode

STATE = np.arange(20, dtype=np.uint8)


def words(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i4")


def packed(*numbers: int, rest: bytes = b"") -> np.ndarray:
    data = struct.pack(f"<{len(numbers)}i", *numbers) + rest
    return words(data + bytes(-len(data) % 4))


def test_a_file_of_text_is_laid_out_as_llama_server_does() -> None:
    """S31: magic, version, count, payload (-1, 1, count, tokens, no media), then the state without its header."""
    data = b"".join(encode(Saved(np.array([5, 6, 7], np.int32), STATE)))
    assert data == struct.pack("<III", 0x67677371, 3, 7) + struct.pack("<iIIiiiI", -1, 1, 3, 5, 6, 7, 0) + STATE[8:].tobytes()


def test_media_follow_the_tokens_padded_to_words() -> None:
    """S31: start indices, then u32 size and bytes for each chunk, zero padded to a multiple of 4."""
    data = b"".join(encode(Saved(np.array([5, -1, -1, 6], np.int32), STATE, ((1, b"abcde"),))))
    payload = struct.pack("<iIIiiiiII", -1, 1, 4, 5, -1, -1, 6, 1, 1) + struct.pack("<I", 5) + b"abcde" + bytes(3)
    assert data == struct.pack("<III", 0x67677371, 3, len(payload) // 4) + payload + STATE[8:].tobytes()


def test_a_plain_token_list_is_read() -> None:
    """S31: legacy: what an older server wrote."""
    tokens, media = decode_tokens(words(struct.pack("<3i", 9, 8, 7)))
    assert (tokens.tolist(), media) == ([9, 8, 7], ())
    assert decode_tokens(words(b""))[0].tolist() == []


BROKEN = {
    "another version": packed(-1, 2, 0, 0),
    "more tokens than there are": packed(-1, 1, 2**31 - 1, 1),
    "more media than there are": packed(-1, 1, 1, 5, 2**30),
    "a chunk that is longer than the rest": packed(-1, 1, 1, -1, 1, 0, 2**31 - 1),
    "something behind the end": packed(-1, 1, 1, 5, 0, 99),
    "an empty chunk": packed(-1, 1, 1, -1, 1, 0, 0),
    "a chunk where a token stands": packed(-1, 1, 2, 5, -1, 1, 0, 1, rest=b"x"),
    "a place without a chunk": packed(-1, 1, 1, -1, 0),
    "chunks out of order": packed(-1, 1, 3, -1, 5, -1, 2, 2, 0, 1, rest=b"x" + struct.pack("<I", 1) + b"y"),
    "the marker alone": packed(-1),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_token_list_that_cannot_be_right_is_refused(broken: np.ndarray) -> None:
    """S31: counts are checked against what is left before anything is allocated."""
    with pytest.raises(Damaged):
        decode_tokens(broken)


@pytest.mark.parametrize("header", [b"", b"ggsq", HEADER.pack(1, 3, 0), HEADER.pack(0x67677371, 2, 0), HEADER.pack(0x67677371, 3, 6)])
def test_a_header_that_cannot_be_right_is_refused(header: bytes) -> None:
    """S31: magic, version, and a count within the file."""
    with pytest.raises(Damaged):
        count_words(header, 12 + 4 * 5)


@given(
    st.lists(st.one_of(st.integers(0, 1000), st.binary(min_size=1, max_size=9)), max_size=20),
    st.integers(1, 3),
)
def test_what_is_written_is_read(parts: list[int | bytes], n_rows: int) -> None:
    """S31 acceptance: byte-level round trip, media among the tokens."""
    tokens: list[int] = []
    media = []
    for part in parts:
        if isinstance(part, bytes):
            media.append((len(tokens), part))
            tokens += [-1] * n_rows
        else:
            tokens.append(part)
    data = b"".join(encode(Saved(np.array(tokens, np.int32), STATE, tuple(media))))
    n_words = count_words(data[: HEADER.size], len(data))
    read, chunks = decode_tokens(words(data[HEADER.size : HEADER.size + 4 * n_words]))
    assert (read.tolist(), chunks, data[HEADER.size + 4 * n_words :]) == (tokens, tuple(media), STATE[8:].tobytes())


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=12))
def test_no_bytes_do_harm(numbers: list[int]) -> None:
    """S31: fuzz: refused or read, never a huge allocation."""
    try:
        tokens, media = decode_tokens(packed(-1, 1, *numbers))
    except Damaged:
        return
    assert len(tokens) + len(media) <= len(numbers)
