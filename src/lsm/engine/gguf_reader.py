"""A place in a file that never reads past the end: what is missing is named, not guessed."""

from __future__ import annotations

import struct
from typing import BinaryIO


class Damaged(Exception):
    """The end of a sentence that begins with the file's path."""


class Cursor:
    """Reads little-endian values from the start of `file` on.  `position` is the next byte's."""

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self.size_bytes = size_bytes
        self.position = 0

    def peek(self, n_bytes: int) -> bytes:
        """Up to `n_bytes` from here on, not consumed; only at the start of the file."""
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
        """A string with its length in front; bytes that are not UTF-8 are shown as replacement characters."""
        n_bytes = self.uint64()
        self._check(n_bytes)
        if n_bytes > max_bytes:
            raise Damaged(f"has {what} of {n_bytes} bytes, at most {max_bytes} are possible. The file is damaged: download it again")
        return self.take(n_bytes).decode("utf-8", "replace")

    def _check(self, n_bytes: int) -> None:
        if n_bytes > self.size_bytes - self.position:
            raise self._truncated()

    def _truncated(self) -> Damaged:
        return Damaged(f"ends in the middle of its header, after byte {self.position}. The file is not whole: download it again")
