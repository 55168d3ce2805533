"""One change in the metadata of a sound GGUF file; everything else stays, byte for byte."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from tests.engine.gguf_bytes import ARRAY, STRING, text

ALIGNMENT = 32
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
LAYOUTS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


@dataclass(frozen=True)
class Pair:
    type_id: int
    raw: bytes  # the value as it stands in the file, without its type


class GgufEdit:
    """`pairs` may be changed; `write` puts the file together again."""

    def __init__(self, path: Path) -> None:
        self._bytes = path.read_bytes()
        self._at = 8
        self._n_tensors, n_pairs = struct.unpack("<QQ", self._take(16))
        self.pairs: dict[str, Pair] = {}
        for _ in range(n_pairs):
            key = self._take(self._uint64()).decode()
            type_id = self._uint32()
            start = self._at
            self._skip_value(type_id)
            self.pairs[key] = Pair(type_id, self._bytes[start : self._at])
        start = self._at
        for _ in range(self._n_tensors):
            self._take(self._uint64())
            self._take(8 * self._uint32() + 4 + 8)
        self._tensors = self._bytes[start : self._at]
        self._data = self._bytes[self._at + -self._at % ALIGNMENT :]

    def set_number(self, key: str, value: float, type_id: int | None = None) -> None:
        kind = self.pairs[key].type_id if type_id is None else type_id
        self.pairs[key] = Pair(kind, struct.pack(LAYOUTS[kind], value))

    def set_text(self, key: str, value: str) -> None:
        self.pairs[key] = Pair(STRING, text(value))

    def set_array(self, key: str, type_id: int, values: list[bytes]) -> None:
        self.pairs[key] = Pair(ARRAY, struct.pack("<IQ", type_id, len(values)) + b"".join(values))

    def set_numbers(self, key: str, type_id: int, values: list[float]) -> None:
        self.set_array(key, type_id, [struct.pack(LAYOUTS[type_id], value) for value in values])

    def write(self, path: Path) -> Path:
        pairs = b"".join(text(key) + struct.pack("<I", pair.type_id) + pair.raw for key, pair in self.pairs.items())
        header = self._bytes[:8] + struct.pack("<QQ", self._n_tensors, len(self.pairs)) + pairs + self._tensors
        path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + self._data)
        return path

    def _skip_value(self, type_id: int) -> None:
        if type_id == STRING:
            self._take(self._uint64())
        elif type_id == ARRAY:
            element, length = self._uint32(), self._uint64()
            for _ in range(length):
                self._skip_value(element)
        else:
            self._take(SIZES[type_id])

    def _take(self, n_bytes: int) -> bytes:
        self._at += n_bytes
        return self._bytes[self._at - n_bytes : self._at]

    def _uint32(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _uint64(self) -> int:
        return int.from_bytes(self._take(8), "little")
