"""What the simulation of whole runs (`specs.simulate`) found in the owner: each story, cut down to what is needed to see it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.abc import Clock

from lsm.errors import WakeFailed
from lsm.runtime import executor
from lsm.runtime.owner import MAP_ATTEMPTS

from .conftest import House

RESTORE_S, BATCH_S = 0.3, 0.01


async def test_maps_are_attempted_so_often_and_no_more(autojump_clock: Clock, house: House) -> None:
    """Design 3.7: about three seconds of patience, then others have their turn."""
    a = await house.model("a")
    await a.sleep()
    house.device.refuse = 1000
    start = trio.current_time()
    with pytest.raises(WakeFailed):
        await house.serve(a)
    assert len(house.device.times("a", "restore")) == MAP_ATTEMPTS
    assert trio.current_time() - start == pytest.approx(3.1, abs=0.1)


async def test_a_device_that_nobody_needs_any_more_is_not_asked_for_again(autojump_clock: Clock, house: House) -> None:
    """P12, found by simulation: a place in the line whose requests were cancelled during the pauses held the token to the end of them."""
    a = await house.model("a")
    b = await house.model("b")
    await b.sleep()
    house.device.refuse = 2
    answer = house.start(a)
    await house.until(lambda: a.state("token") == "retrying")
    a.cancel(answer)
    start = trio.current_time()
    assert await house.serve(b) == 1
    assert trio.current_time() - start < 0.1 + RESTORE_S + BATCH_S + 0.05
    assert len(house.device.times("a", "restore")) == 2 and a.state("token") == "asleep"


async def test_a_load_that_comes_after_stop_is_not_started(autojump_clock: Clock, house: House) -> None:
    """Found by simulation: models are loaded one after the other; those still to come were queued behind the stop, which then hung."""
    a = await house.model("a", loaded=False)
    start = trio.current_time()
    async with trio.open_nursery() as stopping:
        stopping.start_soon(a.stop)
        await house.until(lambda: a.state("load") == "unloaded")
        await trio.testing.wait_all_tasks_blocked()
        await a.load()
    assert trio.current_time() == start
    assert (a.state("token"), a.state("load")) == ("asleep", "unloaded")


async def test_an_owner_that_has_ended_leaves_no_machine_behind(autojump_clock: Clock, house: House) -> None:
    """P16, found by simulation: every host that was opened and closed left its machines in the shared executors, for good."""
    before = [len(engine.models) for _, engine in executor._engines.values()]
    async with trio.open_nursery() as nursery:
        other = House(house.arena, nursery, house._files)
        await other.model("a")
        assert [len(engine.models) for _, engine in executor._engines.values()] != before
        nursery.cancel_scope.cancel()
    assert [len(engine.models) for _, engine in executor._engines.values()] == before
