"""What waits between a generation and a socket.

A generation must never wait for a client: it would keep its slot from others.  So it puts, without waiting, and a client that is too
slow for `limit_bytes` loses the rest.  Everything that is ready goes out as one piece, because the cost is in the number of sends.
"""

from __future__ import annotations

import trio


class OutboxFull(Exception):
    """The client reads too slowly."""


class Outbox:
    """One writer, one reader."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._is_closed = False
        self._changed = trio.Event()

    def put_nowait(self, piece: bytes) -> None:
        """Raises `OutboxFull` if it does not fit; what is in already stays."""
        if self._size_bytes + len(piece) > self._limit_bytes:
            raise OutboxFull
        self._append(piece)

    def replace_nowait(self, piece: bytes) -> None:
        """For news of which only the latest counts: what has not been sent yet is dropped."""
        self._pieces.clear()
        self._size_bytes = 0
        self._append(piece)

    def close(self, last: bytes = b"") -> None:
        """Nothing more will come.  `last` always fits, so that a client can be told why."""
        self._append(last)
        self._is_closed = True

    async def take(self, timeout_s: float) -> bytes | None:
        """All that is ready, as one piece; empty if nothing came in time; None after the end."""
        if not self._pieces and not self._is_closed:
            self._changed = trio.Event()
            with trio.move_on_after(timeout_s):
                await self._changed.wait()
        taken, is_all = self.take_rest()
        return None if is_all and not taken else taken

    def take_rest(self) -> tuple[bytes, bool]:
        """What is ready now, and whether it is all."""
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self._size_bytes = 0
        return taken, self._is_closed

    def _append(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._size_bytes += len(piece)
        self._changed.set()
