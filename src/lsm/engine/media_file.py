"""What a media file says of itself, read before a decoder sees it: one that would take gigabytes, or end the process, becomes a sentence.

Formats are those that libmtmd decodes by itself.  Only sizes are read here; what else is wrong with a file its decoder says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from lsm.errors import InvalidRequest

MAX_SIDE = 16_384  # pixels
MAX_PIXELS = 64_000_000
MIN_SOUND_S, MAX_SOUND_S = 0.025, 3_600.0  # a window of the spectrum; at 16 kHz an hour is 230 MB
RATES = (1_000, 384_000)  # samples a second

Size = tuple[int, int]
T = TypeVar("T")


def check_file(data: bytes, has_vision: bool, has_audio: bool) -> None:
    """Raises `InvalidRequest`: empty, of a format that is not known, too large, or of a kind that the model does not take."""
    if not data:
        raise InvalidRequest("a media file is empty")
    kind = _kind(data)
    if kind in IMAGES:
        if not has_vision:
            raise InvalidRequest("image input is not supported by this model - hint: its --mmproj has no vision encoder")
        _check_image(kind, _read(kind, IMAGES[kind], data))
    elif kind in SOUNDS:
        if not has_audio:
            raise InvalidRequest("audio input is not supported by this model - hint: its --mmproj has no audio encoder")
        _check_sound(kind, *_read(kind, SOUNDS[kind], data))
    else:
        raise InvalidRequest(f"a media file is {kind or 'of an unknown format'}; PNG, JPEG, GIF, BMP, WAV, MP3 and FLAC are supported")


def _kind(data: bytes) -> str:
    if data[:4] == b"RIFF":
        return {b"WAVE": "WAV", b"WEBP": "a WebP image"}.get(data[8:12], "a RIFF file")
    for start, kind in MAGIC:
        if data.startswith(start):
            return kind
    if len(data) > 8 and data[4:8] == b"ftyp":
        return "a video (or an image of a kind that needs a video decoder), which is not supported"
    if len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0:
        return "MP3"
    return ""


def _read(kind: str, reader: Callable[[bytes], T], data: bytes) -> T:
    try:
        return reader(data)
    except (struct.error, IndexError, ZeroDivisionError):
        raise InvalidRequest(f"the {kind} file is cut off, or damaged") from None


def _check_image(kind: str, size: Size) -> None:
    width, height = size
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE) or width * height > MAX_PIXELS:
        raise InvalidRequest(f"the {kind} image has {width} x {height} pixels; possible are up to {MAX_PIXELS:,} and {MAX_SIDE:,} a side")


def _check_sound(kind: str, rate: int, seconds: float) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise InvalidRequest(f"the {kind} file has {rate} samples a second; possible are {RATES[0]} to {RATES[1]}")
    if not MIN_SOUND_S <= seconds <= MAX_SOUND_S:
        raise InvalidRequest(f"the {kind} file lasts {seconds:.3f} s; possible are {MIN_SOUND_S} s to {MAX_SOUND_S:.0f} s")


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> Size:
    if struct.unpack_from("<I", data, 14)[0] == 12:  # of OS/2
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # negative: from top to bottom


def _jpeg(data: bytes) -> Size:
    """Segments follow each other, each with its length, up to the frame header, which has the size."""
    at = 2
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        marker, length = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
        if data[at] != 0xFF or length < 2:
            raise IndexError
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length


def _wav(data: bytes) -> tuple[int, float]:
    """Samples a second, and seconds: what the header says, or the bytes that are there, whatever is more."""
    at, rate, bytes_a_second = 12, 0, 0
    while True:
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt ":
            rate, bytes_a_second = struct.unpack_from("<II", data, at + 12)
        if name == b"data":
            return rate, max(min(size, len(data) - at - 8), 0) / bytes_a_second if size <= len(data) else size / bytes_a_second
        at += 8 + size + size % 2


def _flac(data: bytes) -> tuple[int, float]:
    """The first block of metadata has 20 bits of rate and 36 bits of samples."""
    bits = int.from_bytes(data[18:26], "big")
    if len(data) < 26:
        raise IndexError
    rate, n_samples = bits >> 44, bits & (2**36 - 1)
    return rate, n_samples / rate


def _mp3(data: bytes) -> tuple[int, float]:
    """By the first frame; a file without a known one lasts as long as at the lowest rate of bits."""
    at = 0
    if data[:3] == b"ID3":
        at = 10 + sum((data[6 + i] & 0x7F) << shift for i, shift in enumerate((21, 14, 7, 0)))
    kilobits = 8
    if data[at] == 0xFF and data[at + 1] & 0xE0 == 0xE0:
        is_version_1, is_layer_3 = data[at + 1] & 0x18 == 0x18, data[at + 1] & 0x06 == 0x02
        index = data[at + 2] >> 4
        kilobits = (KILOBITS_1 if is_version_1 else KILOBITS_2)[index] if is_layer_3 else 32
    return 44_100, len(data) / (kilobits or 8) / 125


KILOBITS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)  # of layer III
KILOBITS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)
MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"fLaC", "FLAC"),
    (b"ID3", "MP3"),
    (b"\x1aE\xdf\xa3", "a video, which is not supported"),
    (b"OggS", "an Ogg file"),
    (b"%PDF", "a PDF document"),
)
IMAGES: dict[str, Callable[[bytes], Size]] = {"PNG": _png, "JPEG": _jpeg, "GIF": _gif, "BMP": _bmp}
SOUNDS: dict[str, Callable[[bytes], tuple[int, float]]] = {"WAV": _wav, "FLAC": _flac, "MP3": _mp3}
