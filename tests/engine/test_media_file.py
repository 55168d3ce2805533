"""What a media file says of its size, before a decoder sees it."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.media_file import check_file
from lsm.errors import InvalidRequest
from tests.media_files import bmp, huge_png, png, wav

FLAC_HEAD = b"fLaC\x00\x00\x00\x22" + bytes(10)


def jpeg(width: int, height: int) -> bytes:
    segment = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + segment + b"\xff\xff" + frame[1:] + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(10)


def flac(rate: int, n_samples: int) -> bytes:
    return FLAC_HEAD + (rate << 44 | 1 << 41 | 15 << 36 | n_samples).to_bytes(8, "big") + bytes(16)


@pytest.mark.parametrize("data", [png(), bmp(), jpeg(640, 480), gif(10, 20)])
def test_images_of_a_usual_size_pass(data: bytes) -> None:
    """S15: PNG, JPEG, GIF, BMP."""
    check_file(data, True, False)


MP3 = b"\xff\xfb\x90\x00" + bytes(16_000)
TAGGED = b"ID3\x04\0\0\0\0\0\0" + MP3


@pytest.mark.parametrize("data", [wav(), flac(44_100, 441_000), MP3, TAGGED])
def test_sounds_of_a_usual_length_pass(data: bytes) -> None:
    """S15: WAV, FLAC, MP3."""
    check_file(data, False, True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (huge_png(10_000, 10_000), "10000 x 10000 pixels"),
        (huge_png(100_000_000, 1), "100000000 x 1 pixels"),
        (huge_png(0, 5), "0 x 5 pixels"),
        (jpeg(40_000, 2), "40000 x 2"),
        (gif(0, 0), "0 x 0"),
        (png()[:20], "cut off"),
        (b"\xff\xd8\xff", "cut off"),
        (jpeg(640, 480)[:25], "cut off"),
        (b"BM", "cut off"),
        (b"RIFF1234WEBPVP8 ", "a WebP image"),
        (b"\0\0\0\x20ftypisom", "a video"),
        (b"\x1aE\xdf\xa3", "a video"),
        (b"hello", "of an unknown format"),
        (b"%PDF-1.7", "a PDF document"),
        (wav(), "audio input is not supported"),
    ],
)
def test_what_is_no_usual_image_is_refused(data: bytes, message: str) -> None:
    """S15: 400 before a decoder takes gigabytes."""
    with pytest.raises(InvalidRequest, match=message):
        check_file(data, True, False)


def with_rate(rate: int) -> bytes:
    sound = bytearray(wav())
    sound[24:32] = struct.pack("<II", rate, rate * 2)
    return bytes(sound)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_rate(1), "1 samples a second"),
        (with_rate(0), "cut off, or damaged"),
        (wav()[:40] + struct.pack("<I", 2**32 - 1) + wav()[44:], "lasts 134217.7"),
        (wav(0.001), "lasts 0.001 s"),
        (wav()[:30], "cut off"),
        (flac(48_000, 2**36 - 1), "lasts 1431655"),
        (flac(0, 5), "cut off, or damaged"),
        (b"fLaC" + bytes(4), "cut off"),
        (b"\xff\xe3\x10\x00" + bytes(4_000_000), "lasts 4000"),
        (png(), "image input is not supported"),
    ],
)
def test_sounds_that_would_fill_the_memory_are_refused(data: bytes, message: str) -> None:
    """S15: a header may claim days, or a rate that a decoder would blow up to gigabytes."""
    with pytest.raises(InvalidRequest, match=message):
        check_file(data, False, True)


HEADS = (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF0000WAVE", b"fLaC", b"ID3", b"\xff\xfb")


@given(st.binary(max_size=80), st.sampled_from(HEADS))
def test_no_bytes_raise_anything_else(tail: bytes, head: bytes) -> None:
    """S15: hostile files are a 400 or pass to the decoder."""
    try:
        check_file(head + tail, True, True)
    except InvalidRequest:
        pass
