"""Lines over the process's own stdin and stdout.

The SDK reads stdin on a thread, which nothing can wake: a server told to end would hang until its client writes or leaves.
Here every wait is a descriptor, so it can be cancelled.  Descriptors stay blocking: another process may share them.
"""

from __future__ import annotations

import os
import select
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from lsm.errors import InvalidRequest

READ_BYTES = 65536
MAX_LINE_BYTES = 32 << 20  # the same bound as for a body over HTTP


async def read_lines(descriptor: int) -> AsyncGenerator[str, None]:
    """Lines without their end, until the other side closes.  Raises `InvalidRequest` for an endless one."""
    buffer = bytearray()
    while chunk := await _read(descriptor):
        searched = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            yield buffer[:end].decode("utf-8", "replace")
            del buffer[: end + 1]
            searched = 0
        if len(buffer) > MAX_LINE_BYTES:
            raise InvalidRequest(f"a message of more than {MAX_LINE_BYTES} bytes came in: send less at once")
    if buffer:
        yield buffer.decode("utf-8", "replace")


class Writer:
    """What the SDK wants of a text file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def write(self, text: str) -> None:
        left = memoryview(text.encode())
        while left:
            await _ready(trio.lowlevel.wait_writable, self._descriptor)
            left = left[os.write(self._descriptor, left[: select.PIPE_BUF]) :]  # so much never blocks once it is writable

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


@contextmanager
def taken_stdout() -> Iterator[int]:
    """A descriptor for the wire; meanwhile whatever else writes to stdout (a library, a print) lands on stderr."""
    wire = os.dup(1)
    os.dup2(2, 1)
    try:
        yield wire
    finally:
        os.dup2(wire, 1)
        os.close(wire)


async def _read(descriptor: int) -> bytes:
    await _ready(trio.lowlevel.wait_readable, descriptor)
    return os.read(descriptor, READ_BYTES)


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await wait(descriptor)
    except PermissionError:  # a plain file (or /dev/null) cannot be waited for and never blocks
        await trio.lowlevel.checkpoint()
