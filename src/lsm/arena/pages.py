"""What stands on a page of the ledger, and how it is written so that no reader ever meets half of it.

A page has two slots of a fixed size.  Each holds a check sum, a number that grows, and JSON; a writer takes the older slot, in one call.
So a write that is torn, or never ends, leaves the other slot to be read, and the file keeps its inode: a lock is on the inode, and
a new file put in place by `rename` would have lost it.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SLOT_SIZE_BYTES = 1024
_SIZE_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Page:
    """What one model has, or is about to take, on the device.  Sizes in bytes; times in seconds of `time.monotonic`."""

    pid: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)  # by class of memory
    stays: int = 0  # of these, what is left behind by a model that is asked to give some
    busy: bool = False
    used_s: float = 0.0
    held_until_s: float = 0.0  # the end of the minimum hold
    needs: int = 0  # while it waits for room: how much it misses
    asks: tuple[int, ...] = ()  # numbers of the pages it has asked to leave: for people, the locks on their bells count
    stuck: bool = False  # what stays could not leave when somebody asked for it: there is nowhere to put the copy

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def encode(page: Page, sequence: int) -> bytes:
    """One slot.  Names of those who were asked are left out before the slot overflows: nothing is decided by them."""
    text = json.dumps({name: getattr(page, name) for name in Page.__slots__}, separators=(",", ":"))
    if len(text) > SLOT_SIZE_BYTES - 32:
        assert page.asks, "a page without asks fits"
        return encode(replace(page, asks=()), sequence)
    body = f"{sequence:016x} {text}".encode().ljust(SLOT_SIZE_BYTES - 10) + b"\n"
    return f"{zlib.crc32(body):08x} ".encode() + body


def decode(slot: bytes) -> tuple[int, Page] | None:
    """The number and the page; None for anything that `encode` has not made."""
    head, _, body = slot.partition(b" ")
    try:
        if len(slot) != SLOT_SIZE_BYTES or int(head, 16) != zlib.crc32(body):
            return None
        sequence, _, text = body.partition(b" ")
        return int(sequence, 16), _page(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def read_page(fd: int) -> tuple[int, Page] | None:
    """The newer of the slots that can be read, with its number; None: neither can."""
    raw = os.pread(fd, 2 * SLOT_SIZE_BYTES, 0)
    slots = [decode(raw[:SLOT_SIZE_BYTES]), decode(raw[SLOT_SIZE_BYTES:])]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


def write_page(fd: int, page: Page, sequence: int) -> None:
    """`sequence` is one more than at the last write.  OSError: the disk is full; what was there can still be read."""
    os.pwrite(fd, encode(page, sequence), (sequence % 2) * SLOT_SIZE_BYTES)


def _page(value: Any) -> Page:
    page = Page(**{**value, "asks": tuple(value["asks"])})
    sizes = (*page.sizes.values(), page.stays, page.needs, *page.asks, page.pid)
    if not all(type(size) is int and 0 <= size < _SIZE_MAX for size in sizes) or not all(isinstance(name, str) for name in page.sizes):
        raise ValueError("not a size")
    if not type(page.busy) is type(page.stuck) is bool or not all(math.isfinite(time) for time in (page.used_s, page.held_until_s)):
        raise ValueError("not a page")
    return page
