"""Models side by side on one device under a budget: real arena, real tables, scripted engines, virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.abc import Clock

from lsm.arena.ledger import Ledger
from lsm.arena.line import Line
from lsm.errors import Unavailable
from lsm.runtime.owner import Owner

from .conftest import House, read

KV, ONE = 20, 90  # bytes of one scripted model: its KV cache, and all of it


def budget(house: House, size: int) -> None:
    house.budget_bytes = house.device.capacity = size


def moves(house: House) -> list[tuple[float, str, str]]:
    return [entry for entry in house.device.log if not entry[2].startswith("served")]


async def idle(house: House, owner: Owner) -> None:
    """Awake, nothing to do, the minimum hold over."""
    await house.until(lambda: owner.state("token") == "awake" and not owner.demand.count)
    await trio.sleep(0.2)


async def test_two_that_fit_never_move(autojump_clock: Clock, house: House) -> None:
    """Design 4: a process stays resident without the token while the sum in the ledger is within the budget."""
    budget(house, 2 * ONE)
    a, b = await house.model("a"), await house.model("b")
    loaded = moves(house)
    for _ in range(30):
        assert await house.serve(a) == await house.serve(b) == 1
    assert moves(house) == loaded
    assert house.device.peak == 2 * ONE


async def test_a_resident_under_a_budget_has_neither_token_nor_ticket(autojump_clock: Clock, house: House) -> None:
    """Design 4: whoever has written its entry hands the token on."""
    budget(house, 2 * ONE)
    a = await house.model("a")
    assert a.state("token") == "awake"
    assert not a._line.has_token and a._line.number == 0


async def test_two_of_which_one_and_a_half_fit_alternate(autojump_clock: Clock, house: House) -> None:
    """Design 4: who needs room asks others to leave, waits until their entries have shrunk, then maps."""
    budget(house, ONE + KV)
    a, b = await house.model("a"), await house.model("b")
    for _ in range(5):
        assert await house.serve(a) == await house.serve(b) == 1
    assert len(house.device.times("a", "restored")) == 5
    assert house.device.peak == ONE + KV


async def test_a_kv_cache_that_stayed_leaves_when_nothing_else_helps(autojump_clock: Clock, house: House) -> None:
    """Design 4: compute and weights are asked for before KV, and KV too if it must be."""
    budget(house, ONE + KV - 1)
    a, b = await house.model("a"), await house.model("b")
    assert await house.serve(a) == await house.serve(b) == await house.serve(a) == 1
    assert house.device.peak <= ONE + KV - 1
    assert house.device.bytes["b"] == {}


async def test_the_least_recently_used_leaves(autojump_clock: Clock, house: House) -> None:
    """Design 4: least recently used first."""
    budget(house, 2 * ONE + KV)
    a, b = await house.model("a"), await house.model("b")
    await house.serve(b)
    await house.serve(a)
    await trio.sleep(1)
    c = await house.model("c")
    assert (a.state("sleep"), b.state("sleep"), c.state("sleep")) == ("awake", "asleep", "awake")
    assert b.why == "left for c: 70 B"


async def test_a_busy_resident_is_left_alone_when_an_idle_one_is_enough(autojump_clock: Clock, house: House) -> None:
    """Design 4: the cheapest sufficient set."""
    budget(house, 2 * ONE + KV)
    a, b = await house.model("a"), await house.model("b")
    await trio.sleep(1)
    await house.serve(b)
    answer = house.start(a, tokens=1000)
    await trio.sleep(1)
    await house.model("c")
    assert (a.state("sleep"), b.state("sleep")) == ("awake", "asleep")
    assert await read(answer) == 1000


async def test_a_busy_resident_that_is_asked_drains_after_the_quantum(autojump_clock: Clock, house: House) -> None:
    """Design 3.4: at the next batch boundary, in the middle of a generation if need be; nothing is recomputed."""
    budget(house, ONE + KV)
    a = await house.model("a", quantum_s=0.5)
    answer = house.start(a, tokens=200)  # two seconds
    await trio.sleep(0.2)
    start = trio.current_time()
    b = await house.model("b", quantum_s=0.5)
    assert 0.5 <= house.device.times("a", "released")[0] - start <= 0.6
    assert await read(answer) == 200
    assert await house.serve(b) == 1


async def test_two_busy_ones_that_never_fit_take_turns(autojump_clock: Clock, house: House) -> None:
    """P5: no livelock of two models that evict each other; nobody waits for ever."""
    budget(house, ONE)
    a, b = await house.model("a", quantum_s=0.5), await house.model("b", quantum_s=0.5)
    answers = [house.start(a, tokens=150), house.start(b, tokens=150)]
    assert [await read(answer) for answer in answers] == [150, 150]
    assert 2 <= len(house.device.times("a", "restored")) <= 8


async def test_the_minimum_hold_protects_from_being_asked(autojump_clock: Clock, house: House) -> None:
    """S3: whoever has just come stays for 100 ms."""
    budget(house, ONE + KV)
    a = await house.model("a")
    b = await house.model("b", loaded=False)
    await a.sleep()
    await a.wake()
    woken = trio.current_time()
    await b.wake()
    assert house.device.times("a", "released")[-1] >= woken + 0.1


async def test_a_model_larger_than_the_budget_is_refused_with_both_numbers(autojump_clock: Clock, house: House) -> None:
    """B9: size above budget is an error at load with a remedy, never a wait."""
    budget(house, ONE - 1)
    a = await house.model("a", loaded=False)
    with pytest.raises(Unavailable, match=r"needs 90 B .*budget is 89 B; raise --vram-budget"):
        await a.wake()
    assert a.state("load") == "failed"
    assert house.device.times("a", "load") == []
    assert a.state("token") == "asleep"


async def test_who_gives_up_while_others_are_leaving_asks_no_longer(autojump_clock: Clock, house: House) -> None:
    """S2: cancel works wherever somebody waits; a stale ask moves nobody."""
    budget(house, ONE + KV)
    a = await house.model("a", quantum_s=60)
    b = await house.model("b", quantum_s=60, loaded=True)
    answer = house.start(b, tokens=300)
    await trio.sleep(0.2)
    with trio.move_on_after(1):
        await a.wake()
    await house.until(lambda: a.state("token") == "asleep")
    assert await read(answer) == 300
    assert b.state("sleep") == "awake"
    assert house.device.times("b", "released") == []


async def test_an_owner_that_dies_is_paid_back(autojump_clock: Clock, house: House, tmp_path: Path) -> None:
    """Design 4: a dead owner's bytes count until its memory has had time to come back, and then no longer."""
    budget(house, ONE + KV)
    dead = Ledger(house.arena, "dead")
    dead.write(sizes={"weights": 60})
    dead.open_page()
    dead._abandon()  # as the kernel does it
    start = trio.current_time()
    a = await house.model("a")
    assert a.state("sleep") == "awake"
    assert 1.0 <= house.device.times("a", "load")[0] - start <= 1.5
    assert sorted((house.arena / "ledger").iterdir()) == sorted((house.arena / "ledger").glob("*.a"))


async def test_a_lost_ring_costs_no_more_than_the_next_look(autojump_clock: Clock, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a bell is a hint; whoever waits for room rings again."""
    budget(house, ONE + KV)
    monkeypatch.setattr(Line, "bell_ring", lambda self: None)  # nobody hears that somebody has left
    await house.model("a")
    start = trio.current_time()
    b = await house.model("b")
    assert b.state("sleep") == "awake"
    assert trio.current_time() - start < 2.0


async def test_a_model_without_a_budget_has_the_device_alone(autojump_clock: Clock, house: House) -> None:
    """Design 4: exclusive is the special case; whoever shares with nobody asks all to leave."""
    budget(house, 2 * ONE)
    a, b = await house.model("a"), await house.model("b")
    house.budget_bytes = None
    c = await house.model("c")
    assert [m.state("sleep") for m in (a, b, c)] == ["asleep", "asleep", "awake"]
    assert house.device.bytes["a"] == house.device.bytes["b"] == {}
    assert await house.serve(a) == 1  # c has yielded
    assert c.state("sleep") == "asleep"


async def test_room_for_an_encoder_is_charged_or_refused_at_once(autojump_clock: Clock, house: House) -> None:
    """Design 4: everything is charged; growing takes the token for an instant and asks nobody to leave."""
    budget(house, 2 * ONE)
    a = await house.model("a")
    assert a.room.grow("encoder", ONE) and not a.room.grow("encoder", ONE + 1)
    b = await house.model("b", loaded=False)
    with trio.move_on_after(5):
        await b.wake()  # a is asked, and leaves with everything
    assert b.state("sleep") == "awake"


async def test_room_is_refused_while_somebody_moves_memory(autojump_clock: Clock, house: House) -> None:
    """Design 4: the token is the right to change what is in device memory."""
    budget(house, 3 * ONE)
    a = await house.model("a")
    b = await house.model("b", loaded=False, load_s=5.0)
    await b.load()
    await house.until(lambda: b.state("load") == "loading")
    assert not a.room.grow("encoder", 1)
    await b.wake()
    assert a.room.grow("encoder", 1)
    a.room.shrink("encoder")
    assert "encoder" not in a._ledger.page.sizes


async def test_the_state_shows_who_has_what_and_who_is_asked(autojump_clock: Clock, house: House) -> None:
    """S10: the budget is reported."""
    from lsm.runtime.state import document

    budget(house, ONE + KV)
    a = await house.model("a", quantum_s=60)
    answer = house.start(a, tokens=100)
    await trio.sleep(0.2)
    b = await house.model("b", loaded=False)
    await b.load()
    await house.until(lambda: b.state("token") == "clearing" and bool(b.room.asks))
    shown: dict[str, Any] = document([(a, Path("a")), (b, Path("b"))], house.arena, house.budget_bytes)
    assert [(m["alias"], m["bytes"], m["asks"], m["missing_bytes"]) for m in shown["ledger"]] == [
        ("a", {"weights": 60, "kv": 20, "compute": 10}, [], 0),
        ("b", {}, ["a"], 70),
    ]
    assert shown["models"][1]["why"] == "waits until a has left: needs 70 B more than the budget has left"
    assert await read(answer) == 100


async def test_the_engine_is_asked_once_what_a_load_will_take(autojump_clock: Clock, house: House) -> None:
    """Design 3.6: looks for room come four times a second, and to measure a model may take longer."""
    budget(house, ONE)
    a = await house.model("a", loaded=False, measure_s=2.0)
    start = trio.current_time()
    await a.wake()
    assert house.device.times("a", "measured") == [start + 2.0]
    assert house.device.times("a", "load") == [start + 2.0]


async def test_nobody_is_asked_for_what_the_dead_give_back(autojump_clock: Clock, house: House) -> None:
    """Design 4: a dead owner's bytes come back by themselves; whoever lives stays."""
    budget(house, 2 * ONE)
    a = await house.model("a")
    dead = Ledger(house.arena, "dead")
    dead.write(sizes={"weights": 60})
    dead.open_page()
    dead._abandon()  # as the kernel does it
    b = await house.model("b")
    assert (a.state("sleep"), b.state("sleep")) == ("awake", "awake")
    assert house.device.times("a", "released") == []


async def test_a_kv_cache_that_cannot_leave_ends_the_wait_for_it(autojump_clock: Clock, house: House) -> None:
    """Design 4: nobody waits for ever: 503 for who needs the room, the other one goes on, and a disk with room again is found."""
    budget(house, ONE + KV - 1)
    a, b = await house.model("a", full_disk=True), await house.model("b", loaded=False)
    for _ in range(2):
        start = trio.current_time()
        with pytest.raises(Unavailable, match=r"KV cache of a .*LSM_SPILL_DIR"):
            await b.wake()
        assert trio.current_time() - start < 3
        assert await house.serve(a) == 1
        await idle(house, a)
    house.scripts["a"].full_disk = False
    await b.wake()
    assert await house.serve(b) == await house.serve(a) == 1
    assert house.device.peak <= ONE + KV - 1


async def test_who_waits_behind_a_kv_cache_that_cannot_leave_gets_its_turn(autojump_clock: Clock, house: House) -> None:
    """P5: the token is not kept from those who need it meanwhile."""
    budget(house, ONE + KV - 1)
    a, b = await house.model("a", full_disk=True), await house.model("b", loaded=False)
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _ask_b() -> None:
                with pytest.raises(Unavailable, match="KV cache of a"):
                    await b.wake()

            await house.until(lambda: a.state("token") == "asleep")
            assert await house.serve(a) == 1


async def test_a_kv_cache_that_finds_room_in_time_is_waited_for(autojump_clock: Clock, house: House) -> None:
    """Design 4: it tries again at each look."""
    budget(house, ONE + KV - 1)
    a, b = await house.model("a", full_disk=True), await house.model("b", loaded=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(b.wake)
        await house.until(lambda: a.state("token") == "asleep")
        await trio.sleep(0.6)
        house.scripts["a"].full_disk = False
    assert await house.serve(b) == 1
