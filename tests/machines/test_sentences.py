"""Sentences of the requirements that a table says by itself.  What only the machines together can show is in tests/specs."""

from __future__ import annotations

from itertools import product

import pytest

from lsm.machines import LOAD, MACHINES, RESIDENCY, SLEEP, TOKEN
from lsm.machines.encoder import ENCODER
from lsm.machines.request import ENDED, LIVE, REQUEST
from lsm.machines.slot import BUSY, SLOT
from lsm.machines.table import Machine, step
from lsm.machines.token import LEAVE

HOLDS = ("waking", "retrying", "awake", "draining", "sleeping")


def run(machine: Machine, state: str, *events: tuple[str, dict[str, bool]]) -> tuple[str, tuple[str, ...]]:
    """The state after some events, and all effects on the way."""
    effects: tuple[str, ...] = ()
    for event, facts in events:
        state, done = step(machine, state, event, facts)
        effects += done
    return state, effects


def test_want_lock_is_shared_exactly_while_waiting() -> None:
    """S1: dropped as soon as the token is owned, and on every way out of the line before that."""
    for edge in TOKEN.edges:
        had = edge.source in ("joining", "waiting", "taking")
        has = edge.target in ("joining", "waiting", "taking")
        assert ("want_drop" in edge.do) == (had and not has), edge


def test_the_holder_looks_and_nobody_tells_it() -> None:
    """S1: being wanted is level state: no event says so, a fact is sampled when the holder looks."""
    assert "wanted" in TOKEN.facts
    assert {edge.event for edge in TOKEN.edges if {"wanted", "!wanted"} & set(edge.when)} == {"look"}


def test_demand_while_falling_asleep_is_found_when_the_device_is_left() -> None:
    """S2: a task that was posted while the loop decided to sleep wakes it."""
    came = [("rest", {}), ("demand", {"demanded": True}), ("device_left", {"demanded": True})]
    assert run(SLEEP, "awake", *came) == ("waking", ("idle_stop", "token_release", "drain", "token_need"))


def test_demand_is_a_level_and_survives_a_second_sleep() -> None:
    """S2: enters sleep, wakes, re-enters sleep before the waiter runs; the count still says that it waits."""
    again = [
        ("device_left", {"demanded": True}),
        ("device_ready", {"demanded": True}),
        ("device_yielding", {"demanded": True}),
        ("device_left", {"demanded": True}),
    ]
    state, effects = run(SLEEP, "falling_asleep", *again)
    assert state == "waking"
    assert effects.count("token_need") == 2


def test_no_event_but_a_wake_that_failed_or_was_cancelled_ends_waking_without_the_device() -> None:
    """S2: nobody is forgotten: `waking` has four exits, and two of them wait for the device again while somebody is there."""
    exits = {(edge.event, edge.when, edge.target) for edge in SLEEP.edges if edge.source == "waking" and edge.target != "waking"}
    assert exits == {("device_ready", (), "awake"), ("device_left", (), "asleep"), ("device_cancelled", ("!demanded",), "asleep")}
    assert step(SLEEP, "waking", "device_left", {})[1] == ("fail_demand",)


def test_contention_is_not_honoured_before_the_minimum_hold_is_over() -> None:
    """S3: whatever else is true."""
    for wanted, due in product((False, True), repeat=2):
        assert step(TOKEN, "awake", "look", {"rested": False, "wanted": wanted, "due": due}) == ("awake", ())


def test_contention_is_honoured_at_the_first_look_after_it() -> None:
    """S3: no task: release at 100 ms."""
    facts = {"rested": True, "wanted": True, "due": True}
    assert step(TOKEN, "awake", "look", facts) == ("draining", ("tell_yielding",))


def test_the_minimum_hold_starts_with_every_mapping_also_after_a_load() -> None:
    """S3: `mapped` is the only way to become awake, and both a wake and a load end with it."""
    assert {edge.event for edge in TOKEN.edges if edge.target == "awake" and edge.source != "awake"} == {"mapped"}
    assert all("hold_start" in step(TOKEN, "waking", "mapped", {"budgeted": budgeted})[1] for budgeted in (False, True))
    assert "tell_mapped" in step(RESIDENCY, "arriving", "loaded", {})[1]
    assert "tell_mapped" in step(RESIDENCY, "entering", "entered", {})[1]


def test_the_owner_may_let_go_before_the_minimum_hold_is_over() -> None:
    """S3: it applies to contention only."""
    assert step(TOKEN, "awake", "release", {})[0] == "draining"


def test_nothing_is_loaded_before_the_token_is_granted() -> None:
    """S7: the token is held before the first byte; `granted` is told by the map of a model that is not there."""
    assert {edge.event for edge in LOAD.edges if "engine_load" in edge.do} == {"granted"}
    assert {edge.event for edge in RESIDENCY.edges if "tell_granted" in edge.do} == {"enter"}
    mapping = {(edge.source, edge.event) for edge in TOKEN.edges if "device_map" in edge.do}
    assert mapping == {("taking", "token_won"), ("clearing", "room"), ("retrying", "backoff_over")}


def test_a_model_is_resident_before_its_load_lets_go_of_the_demand() -> None:
    """S7: it stays awake, and the first request needs no restore."""
    state, effects = step(LOAD, "loading", "loaded", {})
    assert state == "ready"
    assert effects == ("residency_loaded", "demand_drop")


def test_a_failed_load_gives_the_token_back() -> None:
    """S7: the failed map does, and a demand that remains would only ask again."""
    assert step(LOAD, "loading", "load_failed", {"hopeless": True})[1] == ("residency_failed", "demand_drop")
    assert step(RESIDENCY, "arriving", "load_failed", {})[1] == ("tell_map_failed",)
    assert step(TOKEN, "waking", "map_failed", {"patient": False})[1] == ("device_unmap",)
    assert step(TOKEN, "sleeping", "unmapped", {})[1] == ("discharge", "token_drop", *LEAVE, "tell_left")


def test_under_a_budget_the_token_is_handed_on_once_the_memory_is_there() -> None:
    """Design 4: the token is the right to change what is in device memory; without a budget it is kept."""
    assert "token_drop" in step(TOKEN, "waking", "mapped", {"budgeted": True})[1]
    assert "token_drop" not in step(TOKEN, "waking", "mapped", {"budgeted": False})[1]


def test_room_is_found_before_memory_is_taken_unless_nobody_else_has_any() -> None:
    """Design 4: exclusive is the special case."""
    assert step(TOKEN, "taking", "token_won", {"alone": False}) == ("clearing", ("want_drop", "room_look"))
    assert step(TOKEN, "taking", "token_won", {"alone": True}) == ("waking", ("want_drop", "device_map"))


def test_whoever_stops_asking_unlocks_the_bells() -> None:
    """S2: a stale ask moves nobody."""
    assert all("asks_drop" in edge.do for edge in TOKEN.edges if edge.source == "clearing" and edge.target != "clearing")


def test_an_unload_during_a_load_is_never_lost() -> None:
    """S7: whichever way the load ends, the model goes."""
    assert step(LOAD, "loading", "unload", {}) == ("aborting", ("load_abort",))
    assert step(LOAD, "aborting", "load_failed", {})[0] == "unloaded"
    assert step(LOAD, "aborting", "loaded", {})[0] == "unloading"


def test_demand_wakes_whatever_put_the_model_to_sleep() -> None:
    """S8: the edge has no guard: whether idle sleep is on is not asked."""
    assert [edge.when for edge in SLEEP.edges if (edge.source, edge.event) == ("asleep", "demand")] == [()]


def test_the_token_goes_only_after_the_memory() -> None:
    """S10: every edge that leaves the holding states comes from `unmapped`, and `device_unmap` leads there."""
    leaving = {(e.source, e.event) for e in TOKEN.edges if e.source in HOLDS and e.target not in HOLDS}
    assert leaving == {("sleeping", "unmapped")}
    assert all("device_unmap" in e.do for e in TOKEN.edges if e.target == "sleeping")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
def test_another_machine_is_told_after_everything_is_let_go(machine: Machine) -> None:
    """S1: whoever hears that the device was left finds no lock of ours."""
    letting_go = {"token_drop", "want_drop", "door_open", *LEAVE}
    for edge in machine.edges:
        told = [place for place, effect in enumerate(edge.do) if effect.startswith("tell_")]
        let_go = [place for place, effect in enumerate(edge.do) if effect in letting_go]
        assert not told or not let_go or min(told) > max(let_go), edge


def test_cancel_works_wherever_somebody_waits_in_the_line() -> None:
    """S1: every wait can be cancelled, and is answered."""
    for state in ("doorway", "waiting", "taking"):
        target, effects = step(TOKEN, state, "cancel", {})
        assert (target, effects[-1]) == ("asleep", "tell_cancelled")


def test_weights_leave_before_the_kv_cache_and_the_order_is_told_last() -> None:
    """S9, S10: what is cheapest to bring back leaves first; `left` is reported when all are gone."""
    assert step(RESIDENCY, "resident", "leave", {"evict_kv": True})[1] == (
        "release_compute", "release_encoder", "release_weights", "release_kv", "report_left",
    )  # fmt: skip
    assert step(RESIDENCY, "resident", "leave", {"evict_kv": False})[1] == (
        "release_compute", "release_encoder", "release_weights", "report_left",
    )  # fmt: skip


def test_the_encoder_and_the_weights_take_turns() -> None:
    """S5: (enc HOST, w DEV) -> w HOST -> enc DEV -> encode -> enc HOST -> w DEV."""
    state, done = "host", []
    for event in ("encode", "weights_left", "entered", "encoded", "left", "weights_entered"):
        state, effects = step(ENCODER, state, event, {"fits": False, "fits_alone": True})
        done += effects
    assert (state, done) == ("host", ["release_weights", "restore_encoder", "run", "release_encoder", "restore_weights"])


def test_beside_the_weights_the_encoder_comes_and_goes_alone() -> None:
    """S5: where it fits, the weights stay."""
    state, done = "host", []
    for event in ("encode", "entered", "encoded", "left"):
        state, effects = step(ENCODER, state, event, {"fits": True})
        done += effects
    assert (state, done) == ("host", ["restore_encoder", "run", "release_encoder"])


def test_no_edge_of_the_encoder_touches_the_kv_cache() -> None:
    """S5: KV and prompt cache are left untouched."""
    assert not any("kv" in effect or "compute" in effect for effect in ENCODER.effects)


def test_becoming_awake_brings_in_an_encoder_only_if_it_stays() -> None:
    """S5: the just-in-time restore replaces the one at the wake."""
    assert step(RESIDENCY, "away", "enter", {"encoder_stays": False}) == ("entering", ("restore",))
    assert step(RESIDENCY, "away", "enter", {"encoder_stays": True}) == ("entering", ("restore_with_encoder",))
    assert step(ENCODER, "host", "woken", {}) == ("host", ())


def test_everything_is_restored_by_one_act_before_anything_can_look_at_it() -> None:
    """S6: KV is back before the token is told that the memory is mapped."""
    assert [edge.do for edge in RESIDENCY.edges if edge.target == "entering"] == [("restore",), ("restore_with_encoder",)]
    assert {edge.source for edge in RESIDENCY.edges if "tell_mapped" in edge.do} == {"arriving", "entering"}


def test_a_request_ends_exactly_once() -> None:
    """S2: from every live state it can be cancelled and failed; no edge leaves an end."""
    assert {edge.source for edge in REQUEST.edges} == set(LIVE)
    for state, event in product(LIVE, ("cancel", "fail")):
        assert step(REQUEST, state, event, {})[0] in ENDED


def test_a_slot_is_free_again_however_its_request_ends() -> None:
    """S2: and a failure leaves nothing in the cache that could be taken for a prefix; who only waited keeps what is sound."""
    for state in BUSY:
        assert step(SLOT, state, "finish", {}) == ("idle", ("tokens_keep",))
        untouched = state == "wait_other"
        assert step(SLOT, state, "fail", {}) == ("idle", ("tokens_keep" if untouched else "cache_clear",))
