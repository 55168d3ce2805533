"""The owner and its machines: real arena, real tables, scripted engine, virtual time."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.abc import Clock

from lsm.errors import Unavailable
from lsm.machines import LOAD, RESIDENCY, SLEEP, TOKEN
from lsm.runtime.owner import Owner

from .conftest import House, read


def _waits(owner: Owner) -> bool:
    return owner.state("token") == "waiting"


RESTORE_S, RELEASE_S, BATCH_S = 0.3, 0.02, 0.01


async def test_every_effect_of_the_tables_has_a_performer(autojump_clock: Clock, house: House) -> None:
    """Design 2: effects are names that the runtime performs."""
    owner = await house.model("a")
    assert set(owner._effects()) == {effect for machine in (TOKEN, SLEEP, LOAD, RESIDENCY) for effect in machine.effects}
    assert set(owner._samplers()) == {fact for machine in (TOKEN, SLEEP, LOAD, RESIDENCY) for fact in machine.facts}


async def test_a_resident_model_is_released_before_the_first_byte_of_another_is_loaded(autojump_clock: Clock, house: House) -> None:
    """S7: B loads while A is warm; A is released before B's first allocation."""
    await house.model("a")
    await house.model("b")
    assert house.device.times("a", "released")[0] <= house.device.times("b", "load")[0]


async def test_the_first_request_after_a_load_needs_no_restore(autojump_clock: Clock, house: House) -> None:
    """S7: after a coordinated load the process keeps the token and stays warm."""
    await house.model("a")
    b = await house.model("b")
    await trio.sleep(5)
    assert await house.serve(b) == 1
    assert house.device.times("b", "restore") == []


async def test_a_model_asleep_by_contention_wakes_with_idle_sleep_off(autojump_clock: Clock, house: House) -> None:
    """S8: the wake path is never skipped because idle sleep is off."""
    a = await house.model("a", idle_s=-1)
    await house.model("b")
    await house.until(lambda: a.state("sleep") == "asleep")
    assert await house.serve(a) == 1
    assert len(house.device.times("a", "restored")) == 1


async def test_a_holder_serves_the_task_that_comes_within_the_minimum_hold(autojump_clock: Clock, house: House) -> None:
    """S3: contention present at wake, task arrives at +50 ms: served before the release."""
    a = await house.model("a")
    b = await house.model("b", loaded=False)
    await b.load()
    await house.until(lambda: b.state("token") == "waiting")
    await a.sleep()
    await a.wake()  # again at the end of the line, behind b: b loads, then yields to a
    c = await house.model("c", loaded=False)
    await c.load()
    woken = trio.current_time()
    await trio.sleep(0.05)
    assert await house.serve(a) == 1
    released = [t for t in house.device.times("a", "released") if t > woken]
    assert released == [] or released[0] >= woken + 0.1


async def test_a_holder_with_nothing_to_do_is_held_for_100_ms_and_then_yields(autojump_clock: Clock, house: House) -> None:
    """S3: no task: release at 100 ms or later; measured from the end of the load as well."""
    a = await house.model("a", loaded=False)
    b = await house.model("b", loaded=False)
    await a.load()
    await house.until(lambda: a.state("load") == "loading")
    await b.load()
    await house.until(lambda: b.state("load") == "ready")
    (loaded,), (released,) = house.device.times("a", "loaded"), house.device.times("a", "released")
    assert loaded + 0.1 <= released <= loaded + 0.1 + 2 * RELEASE_S


async def test_one_who_waits_is_woken_though_the_model_wakes_and_sleeps_again_first(autojump_clock: Clock, house: House) -> None:
    """S2: the server wakes, then goes back to sleep before the waiting one is scheduled; demand is counted, so it is woken again."""
    a = await house.model("a")
    b = await house.model("b")
    await house.until(lambda: a.state("sleep") == "asleep")
    answer = house.start(a)
    await house.until(lambda: a.state("sleep") == "awake")
    a._post("sleep", "rest")  # before the engine has made a step for the request
    assert await read(answer) == 1
    assert await house.serve(b) == 1


async def test_a_task_posted_while_falling_asleep_wakes_the_model(autojump_clock: Clock, house: House) -> None:
    """S2: a handler saw "awake" and posted; meanwhile the loop decided to sleep."""
    a = await house.model("a")
    a._post("sleep", "rest")
    await house.until(lambda: a.state("sleep") == "falling_asleep")
    assert await house.serve(a) == 1


@pytest.mark.parametrize("moment", range(12))
async def test_a_task_posted_at_any_step_of_falling_asleep_is_served(autojump_clock: Clock, house: House, moment: int) -> None:
    """S2, every interleaving: the request comes after `moment` more events of the owner."""
    a = await house.model("a")
    b = await house.model("b", loaded=False)
    await b.load()
    await house.until(lambda: a.state("sleep") == "falling_asleep")
    for _ in range(moment):
        await house.changes.after(house.changes.version)
    assert await house.serve(a) == 1
    await house.until(lambda: b.state("load") == "ready")


async def test_a_waiter_is_served_within_quantum_batch_and_restore(autojump_clock: Clock, house: House) -> None:
    """Design 3.4: the holder yields in the middle of a generation; the sequence stays and goes on afterwards."""
    a = await house.model("a", quantum_s=2.0)
    b = await house.model("b")
    long = house.start(a, tokens=1000)  # ten seconds of batches
    await house.until(lambda: a.state("sleep") == "awake")
    start = trio.current_time()
    assert await house.serve(b) == 1
    assert trio.current_time() - start <= 0.1 + 2.0 + BATCH_S + 2 * RELEASE_S + RESTORE_S + BATCH_S + 0.05
    assert await read(long) == 1000


async def test_a_quantum_of_zero_never_yields_within_a_generation(autojump_clock: Clock, house: House) -> None:
    """Design 3.4: a quantum of 0 means never in the middle."""
    a = await house.model("a", quantum_s=0.0)
    b = await house.model("b")
    long = house.start(a, tokens=1000)
    await house.until(lambda: a.state("sleep") == "awake")
    start = trio.current_time()
    await house.serve(b)
    assert trio.current_time() - start >= 9.5
    assert await read(long) == 1000


async def test_back_to_back_requests_do_not_starve_a_waiter(autojump_clock: Clock, house: House, nursery: trio.Nursery) -> None:
    """Design 3.3: no starvation under back-to-back requests, which never leave the holder idle."""
    a = await house.model("a")
    b = await house.model("b")

    async def hammer() -> None:
        while True:
            await house.serve(a, tokens=30)

    for _ in range(3):
        nursery.start_soon(hammer)
    await house.until(lambda: a.state("sleep") == "awake" and bool(a.running))
    start = trio.current_time()
    assert await house.serve(b) == 1
    assert trio.current_time() - start <= 2.0 + 0.1 + 3 * BATCH_S + 2 * RELEASE_S + RESTORE_S + 0.05


async def test_three_models_are_served_in_the_order_in_which_they_asked(autojump_clock: Clock, house: House, nursery: trio.Nursery) -> None:
    """Design 3.3: first come, first served, for any number of processes."""
    owners = [await house.model(name) for name in "abcd"]
    served: list[str] = []

    async def one(owner: Owner) -> None:
        await house.serve(owner)
        served.append(owner.alias)

    async with trio.open_nursery() as requests:
        for owner in (owners[1], owners[0], owners[2]):
            requests.start_soon(one, owner)
            await house.until(partial(_waits, owner))
    assert served == ["b", "a", "c"]


async def test_a_waiter_that_gives_up_causes_no_release(autojump_clock: Clock, house: House) -> None:
    """S1 (ii): the holder's next look sees nobody and keeps the device."""
    a = await house.model("a")
    b = await house.model("b")
    busy = house.start(b, tokens=100)
    await house.until(lambda: bool(b.running))
    answer = house.start(a)
    await house.until(lambda: a.state("token") == "waiting")
    a.cancel(answer)
    with pytest.raises(Unavailable):
        await read(answer)
    await house.until(lambda: a.state("token") == "asleep")
    assert await read(busy) == 100
    await trio.sleep(10)
    assert house.device.times("b", "released") == []


async def test_a_model_leaves_the_device_after_its_idle_time(autojump_clock: Clock, house: House) -> None:
    """C.3 --sleep-idle-seconds: idle time counts from the end of the last request."""
    a = await house.model("a", idle_s=5.0)
    await trio.sleep(3)
    await house.serve(a)
    ended = trio.current_time()
    await house.until(lambda: a.state("sleep") == "asleep")
    assert house.device.times("a", "released") == [pytest.approx(ended + 5.0 + RELEASE_S, abs=0.01)]
    assert await house.serve(a) == 1


async def test_sleep_in_the_middle_of_a_generation_only_pauses_it(autojump_clock: Clock, house: House) -> None:
    """S10: nothing is lost; the running request wakes the model again."""
    a = await house.model("a")
    answer = house.start(a, tokens=50)
    await house.until(lambda: bool(a.running))
    await a.sleep()
    assert await read(answer) == 50
    assert len(house.device.times("a", "restored")) == 1


async def test_questions_are_answered_and_change_nothing_while_the_token_is_waited_for(autojump_clock: Clock, house: House) -> None:
    """P15, design 3.6: looking moves no machine."""
    a = await house.model("a")
    b = await house.model("b")
    busy = house.start(b, tokens=100)
    await house.until(lambda: bool(b.running))
    waiting = house.start(a)
    await house.until(lambda: a.state("token") == "waiting")
    before = len(house.fired)
    start = trio.current_time()
    for _ in range(10):
        assert a.machines()["token"]["state"] == "waiting" and a.waiting == 1 and a.running == 0
    assert len(house.fired) == before and trio.current_time() == start
    assert await read(busy) == 100 and await read(waiting) == 1


async def test_an_idle_model_that_nobody_wants_stays(autojump_clock: Clock, house: House) -> None:
    """Design 4, exclusive policy: no contention, no idle time: it keeps the device."""
    a = await house.model("a")
    await trio.sleep(3600)
    assert house.device.resident == {"a"} and a.state("sleep") == "awake"
