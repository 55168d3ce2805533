"""GGUF files from scratch, byte by byte, so that a test can make each kind of broken one."""

from __future__ import annotations

import struct

U32, STRING, ARRAY = 4, 8, 9
F32 = 0


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def string_pair(key: str, value: str | bytes) -> bytes:
    return text(key) + struct.pack("<I", STRING) + text(value)


def u32_pair(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", U32, value)


def array_pair(key: str, element_type: int, length: int, content: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, element_type, length) + content


def tensor(name: str, shape: tuple[int, ...], offset: int, type_id: int = F32) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type_id, offset)


ARCHITECTURE = string_pair("general.architecture", "llama")
TENSORS = (tensor("a", (8,), 0), tensor("b", (4, 4), 32))
DATA_BYTES = 32 + 64


def gguf(
    pairs: tuple[bytes, ...] = (ARCHITECTURE, string_pair("general.name", "tiny"), array_pair("tokens", STRING, 2, text("a") + text("b"))),
    tensors: tuple[bytes, ...] = TENSORS,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_pairs: int | None = None,
    data_bytes: int = DATA_BYTES,
    alignment: int = 32,
) -> bytes:
    counts = struct.pack("<QQ", len(tensors) if n_tensors is None else n_tensors, len(pairs) if n_pairs is None else n_pairs)
    header = magic + struct.pack("<I", version) + counts + b"".join(pairs) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + bytes(data_bytes)
