"""A place in a file that never reads past the end: what is missing is named, not guessed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

PIECE_BYTES = 4 << 20


class Damaged(Exception):
    """The end of a sentence that begins with the file's path."""


class Cursor:
    """Reads little-endian values from the start of `file` on.  `position` is the next byte's."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self.size_bytes = size_bytes
        self.position = 0

    def peek(self, n_bytes: int) -> bytes:
        """Up to `n_bytes` from here on, not consumed."""
        content = self._file.read(n_bytes)
        self._file.seek(self.position)
        return content

    def take(self, n_bytes: int) -> bytes:
        self._check(n_bytes)
        content = self._file.read(n_bytes)
        if len(content) < n_bytes:  # shorter than it was when it was opened
            raise self._truncated()
        self.position += n_bytes
        return content

    def skip(self, n_bytes: int) -> None:
        self._check(n_bytes)
        self._file.seek(n_bytes, 1)
        self.position += n_bytes

    def unpack(self, layout: struct.Struct) -> int | float | bool:
        value: int | float | bool = layout.unpack(self.take(layout.size))[0]
        return value

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def uint64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self, max_bytes: int, what: str) -> str:
        """A string; bytes that are not UTF-8 are shown as replacement characters."""
        n_bytes = self.uint64()
        self._check(n_bytes)
        if n_bytes > max_bytes:
            raise Damaged(f"has {what} of {n_bytes} bytes, at most {max_bytes} are possible. The file is damaged: download it again")
        return self.take(n_bytes).decode("utf-8", "replace")

    def strings(self, n: int) -> Iterator[bytes]:
        """`n` strings in a row, each with its length in front; by large pieces, as a vocabulary has hundreds of thousands."""
        piece, at = b"", 0
        for _ in range(n):
            end = at + 8 + int.from_bytes(piece[at : at + 8], "little")
            if at + 8 > len(piece) or end > len(piece):
                self.skip(at)
                piece, at = self.peek(PIECE_BYTES), 0
                end = 8 + int.from_bytes(piece[:8], "little")
                if end > len(piece):
                    self._check(end)
                    raise Damaged(f"has a token of {end - 8} bytes, at most {PIECE_BYTES} are possible. The file is damaged")
            yield piece[at + 8 : end]
            at = end
        self.skip(at)

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self.size_bytes - self.position:
            raise self._truncated()

    def _truncated(self) -> Damaged:
        return Damaged(f"ends in the middle of its header, after byte {self.position}. The file is not whole: download it again")
