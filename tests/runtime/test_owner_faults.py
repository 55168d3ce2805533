"""What goes wrong around an owner: files, memory, disk, arena, load, stop.  Real arena and tables, scripted engine, virtual time."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio
from trio.abc import Clock

from lsm.errors import ArenaError, ModelFailed, ModelLoading, Unavailable, WakeFailed
from lsm.runtime.demand import REQUESTS_MAX
from lsm.runtime.line_effects import SLOW_CHECK_S
from lsm.runtime.owner import MAP_ATTEMPTS

from .conftest import House, read


async def test_a_failed_load_leaves_the_token_free(autojump_clock: Clock, house: House) -> None:
    """S7 (c): a failed load releases the token and any allocation before it is reported."""
    a = await house.model("a")
    b = await house.model("b", loaded=False, broken_file=True)
    with pytest.raises(ModelFailed, match="b: the file is broken"):
        await b.wake()
    assert b.state("token") == "asleep" and b.state("load") == "failed"
    assert await house.serve(a) == 1


async def test_a_failed_load_can_be_tried_again(autojump_clock: Clock, house: House) -> None:
    """Design 3.7: stay able to serve the next one."""
    b = await house.model("b", loaded=False, broken_file=True)
    with pytest.raises(ModelFailed):
        await b.wake()
    with pytest.raises(ModelFailed, match="wake the model to try again"):
        house.start(b)
    await b.wake()
    assert await house.serve(b) == 1


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a user of the library would see on stderr."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("fault", ["broken", "changed", "no room", "arena"])
async def test_an_error_names_the_model_once(
    autojump_clock: Clock, house: House, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """B.0: in every message, however often it is asked for, in the log too; nothing is said of no requests."""
    a = await house.model("a", loaded=fault == "changed", broken_file=fault == "broken", changed_file=fault == "changed")
    house.device.refuse = 1000 if fault == "no room" else 0
    if fault == "arena":
        monkeypatch.setattr(a._line, "ticket_lock", failing_ticket)
    if fault == "changed":
        await a.sleep()
    for attempt in (a.wake, partial(house.serve, a), partial(house.serve, a)):
        with pytest.raises(Unavailable) as caught:
            await attempt()
        assert caught.value.message.count("a: ") == 1
    assert a.why and "a: " not in a.why
    assert [text for text in complaints(caplog) if text.count("a: ") != 1 or "503" in text] == []
    assert complaints(caplog)


def failing_ticket() -> None:
    raise ArenaError("another program is in the line")


async def test_the_log_counts_the_requests_that_a_failure_ends(
    autojump_clock: Clock, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """Design 3.7: what clients saw as 503 can be found in the log."""
    a = await house.model("a")
    await a.sleep()
    house.device.refuse = 1000
    for answer in [house.start(a) for _ in range(2)]:
        with pytest.raises(WakeFailed):
            await read(answer)
    assert complaints(caplog)[-1] == "a: no room on the device; requests that end with 503: 2"


@pytest.mark.parametrize("moment", range(0, 12))
async def test_a_load_that_is_called_off_is_no_warning(
    autojump_clock: Clock, house: House, moment: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Habit 9: closing while a model loads, or waits for its turn, is nothing to be warned of."""
    a = await house.model("a", loaded=False)
    b = await house.model("b", loaded=False)
    await a.load()
    await b.load()
    for _ in range(moment):
        await house.changes.after(house.changes.version)
    await b.stop()
    await a.stop()
    assert complaints(caplog) == []


async def test_a_model_that_is_not_loaded_refuses_at_once(autojump_clock: Clock, house: House) -> None:
    """B.0: before the model is loaded, 503 Loading model."""
    b = await house.model("b", loaded=False)
    await b.load()
    with pytest.raises(ModelLoading):
        house.start(b)
    await b.wake()


async def test_a_map_that_fails_is_tried_again_for_a_while(autojump_clock: Clock, house: House) -> None:
    """Design 3.7: a dead holder's memory may be freed later than its flock."""
    a = await house.model("a")
    await a.sleep()
    house.device.refuse = MAP_ATTEMPTS - 1
    assert await house.serve(a) == 1
    assert len(house.device.times("a", "restore")) == MAP_ATTEMPTS


async def test_a_map_that_keeps_failing_ends_the_request_and_not_the_model(autojump_clock: Clock, house: House) -> None:
    """Design 3.7: 503 with Retry-After; the next request is served; the token is free meanwhile."""
    a = await house.model("a")
    b = await house.model("b")
    house.device.refuse = 1000
    with pytest.raises(WakeFailed) as caught:
        await house.serve(a)
    assert caught.value.retry_after_s >= 1 and "no room" in caught.value.message
    house.device.refuse = 0
    assert await house.serve(b) == 1
    assert await house.serve(a) == 1


async def test_a_load_waits_for_the_memory_of_a_dead_peer_too(autojump_clock: Clock, house: House) -> None:
    """Design 3.7 for a load: it is tried again, with the token kept."""
    a = await house.model("a", loaded=False)
    house.device.refuse = 3
    await a.wake()
    assert len(house.device.times("a", "load")) == 4


async def test_a_load_that_never_finds_room_fails_and_can_be_tried_again(autojump_clock: Clock, house: House) -> None:
    """Design 3.7: the state is stable, the token free."""
    a = await house.model("a", loaded=False)
    house.device.refuse = 1000
    with pytest.raises(WakeFailed):
        await a.wake()
    assert (a.state("load"), a.state("token"), a.state("residency")) == ("failed", "asleep", "absent")
    house.device.refuse = 0
    await a.wake()
    assert await house.serve(a) == 1


async def test_a_file_that_changed_fails_the_model_and_a_new_load_mends_it(autojump_clock: Clock, house: House) -> None:
    """Design 4: a replaced file is detected before it is read; a clear error; everything else keeps serving."""
    a = await house.model("a")
    b = await house.model("b")
    house.scripts["a"].changed_file = True
    with pytest.raises(ModelFailed, match="another one"):
        await house.serve(a)
    assert await house.serve(b) == 1
    house.scripts["a"].changed_file = False
    await a.wake()
    assert await house.serve(a) == 1


@pytest.mark.parametrize("moment", range(0, 24))
async def test_stop_ends_in_every_state(autojump_clock: Clock, house: House, moment: int) -> None:
    """Design 2: every wait lists all its exits, stop among them; requests end with an error, not never."""
    a = await house.model("a")
    b = await house.model("b", loaded=False)
    await b.load()
    answer = house.start(a, tokens=10_000)
    for _ in range(moment):
        await house.changes.after(house.changes.version)
    start = trio.current_time()
    async with trio.open_nursery() as stopping:
        stopping.start_soon(a.stop)
        stopping.start_soon(b.stop)
    assert trio.current_time() - start < 5.0
    with pytest.raises(Unavailable):
        await read(answer)
    for owner in (a, b):
        assert (owner.state("token"), owner.state("load"), owner.state("residency")) == ("asleep", "unloaded", "absent")
    assert house.device.resident == set()


async def test_a_full_disk_refuses_new_arrivals_only(autojump_clock: Clock, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """token.md 14: only a new join fails; waiting, waking and handing on need no disk."""
    import os

    a = await house.model("a")
    await house.model("b")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkfifo", full)
        with pytest.raises(WakeFailed, match="No space left"):
            await house.serve(a)
    assert await house.serve(a) == 1


async def test_a_deleted_arena_is_a_clear_error(autojump_clock: Clock, house: House) -> None:
    """token.md: a deleted arena is noticed at join and take."""
    import shutil

    a = await house.model("a")
    await a.sleep()
    shutil.rmtree(house.arena)
    with pytest.raises(WakeFailed, match="deleted"):
        await house.serve(a)


async def test_more_requests_than_can_wait_are_refused_and_the_others_served(autojump_clock: Clock, house: House) -> None:
    """Habit 6: a limit on everything; 503, and nothing lost."""
    a = await house.model("a")
    answers = [house.start(a) for _ in range(REQUESTS_MAX)]
    with pytest.raises(Unavailable, match="try again later"):
        house.start(a)
    for answer in answers:
        assert await read(answer) == 1
    assert await house.serve(a) == 1


async def test_a_holder_whose_arena_was_deleted_leaves_the_device(autojump_clock: Clock, house: House) -> None:
    """Design 3.1: who makes the arena again cannot see the holder; it leaves at its next look, and says why to whoever asks."""
    import shutil

    a = await house.model("a")
    shutil.rmtree(house.arena)
    start = trio.current_time()
    await house.until(lambda: a.state("sleep") == "asleep")
    assert trio.current_time() - start <= SLOW_CHECK_S + 0.1
    assert house.device.resident == set()
    with pytest.raises(WakeFailed, match="deleted"):
        await house.serve(a)
