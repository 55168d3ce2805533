from __future__ import annotations

import math

import pytest
import trio
import trio.testing
from lsm_http.outbox import Outbox, OutboxFull


async def test_all_that_is_ready_is_one_piece() -> None:
    """Design 8: the cost is in the number of sends."""
    outbox = Outbox(100)
    for piece in (b"a", b"b", b"c"):
        outbox.put_nowait(piece)
    assert await outbox.take(math.inf) == b"abc"


async def test_a_full_box_refuses_and_keeps_what_it_has() -> None:
    """Design 8 (4): bounded between engine and socket."""
    outbox = Outbox(3)
    outbox.put_nowait(b"ab")
    with pytest.raises(OutboxFull):
        outbox.put_nowait(b"cd")
    outbox.close(b"!")
    assert await outbox.take(math.inf) == b"ab!"
    assert await outbox.take(math.inf) is None


async def test_taking_makes_room() -> None:
    """Design 8 (4): only what is unsent counts."""
    outbox = Outbox(2)
    for _ in range(3):
        outbox.put_nowait(b"ab")
        assert await outbox.take(math.inf) == b"ab"


async def test_a_taker_who_waits_is_woken(autojump_clock: trio.testing.MockClock) -> None:
    """No polling: a put wakes the taker at once."""
    outbox = Outbox(10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_put_after, outbox, 3.0)
        assert await outbox.take(math.inf) == b"x"
    assert trio.current_time() == pytest.approx(3.0)


async def test_silence_is_reported_in_time(autojump_clock: trio.testing.MockClock) -> None:
    """B.0: a ping every so many seconds."""
    assert await Outbox(10).take(30.0) == b""
    assert trio.current_time() == pytest.approx(30.0)


async def test_of_news_only_the_latest_is_kept() -> None:
    """Design 7: a slow reader of /lsm/events misses states in between, never the latest."""
    outbox = Outbox(0)
    outbox.replace_nowait(b"old")
    outbox.replace_nowait(b"new")
    assert await outbox.take(math.inf) == b"new"


async def _put_after(outbox: Outbox, seconds: float) -> None:
    await trio.sleep(seconds)
    outbox.put_nowait(b"x")
