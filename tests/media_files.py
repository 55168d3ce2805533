"""Small images and sounds, written byte by byte."""

from __future__ import annotations

import io
import struct
import wave
import zlib

import numpy as np


def png(width: int = 40, height: int = 30, seed: int = 1) -> bytes:
    """Coloured noise; another seed, another image."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def huge_png(width: int, height: int) -> bytes:
    """The header of a large image, and little behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"\0" * 100)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bmp(width: int = 8, height: int = 8) -> bytes:
    row = bytes(range(width * 3)) + b"\0" * (-width * 3 % 4)
    size = 54 + len(row) * height
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", size, 0, 0, 54) + header + row * height


def wav(seconds: float = 0.5, rate: int = 16_000, hertz: float = 440.0) -> bytes:
    """A tone in 16 bits."""
    samples = np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 20_000).astype("<i2").tobytes())
    return out.getvalue()
