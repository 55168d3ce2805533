"""Mistakes in the owner of one model: in its tables, its inbox, its engine thread."""

from __future__ import annotations

from dataclasses import replace

from lsm.machines import LOAD, RESIDENCY, SLEEP, TOKEN
from lsm.machines.token import LEAVE
from specs.planting import CALM, FULL, at, edited, in_owner, without

RACING_TOKEN = replace(
    at(at(TOKEN, "awake", "release", do=("drain",)), "awake", "look", "rested", "wanted", "due", do=("tell_yielding", "drain")),
    effects={**TOKEN.effects, "drain": SLEEP.effects["drain"]},
)
RACING_SLEEP = edited(SLEEP, lambda edge: replace(edge, do=tuple(effect for effect in edge.do if effect != "drain")))
IDLE_OFF = replace(CALM, idle_sleep=False)

OWNER = (
    in_owner("demand that came while falling asleep is forgotten", "S2", "a client that waits", 33,
             at(SLEEP, "falling_asleep", "device_left", "demanded", target="asleep", do=())),
    in_owner("demand that came after a cancel is forgotten", "S2", "a client that waits", 40,
             at(SLEEP, "waking", "device_cancelled", "demanded", target="asleep", do=())),
    in_owner("requests do not wake while idle sleep is off", "S8", "a client that waits", 32,
             scenario=replace(IDLE_OFF, mistake="wakes only for idle sleep")),
    in_owner("a failed wake tells nobody", "S2", "a client that waits", 45, at(SLEEP, "waking", "device_left", do=())),
    in_owner("the line fails and SLEEP is not told", "S2", "a client that waits", 36,
             at(TOKEN, "waiting", "line_failed", do=(*LEAVE, "want_drop")), scenario=replace(CALM, line_fails=True)),
    in_owner("the engine is not stopped before the device is left", "S10", "falling asleep", 21,
             at(SLEEP, "awake", "rest", do=("idle_stop", "token_release")), scenario=replace(CALM, rest_calls=True)),
    in_owner("TOKEN stops what SLEEP starts", "S10", "the engine runs only when awake", 23, RACING_TOKEN, RACING_SLEEP),
    in_owner("a model is loaded without the token", "S7", "memory on the device only with the token", 3,
             at(LOAD, "unloaded", "load", target="loading", do=("demand_add", "engine_load"))),
    in_owner("the token is told before the memory has left", "S10", "memory on the device only with the token", 25,
             at(RESIDENCY, "resident", "leave", do=("tell_unmapped", "release_compute", "release_weights", "release_kv"))),
    in_owner("the KV cache comes back after the wake", "S6", "a batch runs only with everything on the device", 44,
             scenario=replace(CALM, mistake="the KV cache comes back later")),
    in_owner("a failed load keeps its demand", "S7", "demand is the number of those who wait", 12,
             at(LOAD, "loading", "load_failed", "hopeless", do=("residency_failed",))),
    in_owner("a load that was called off is granted", "S7", "no event is refused", 11,
             without(LOAD, ("unloaded", "granted"), ("failed", "granted")), scenario=FULL),
    in_owner("an unload while memory moves is refused", "S10", "no event is refused", 29,
             without(RESIDENCY, ("leaving", "freed"), ("entering", "freed")), scenario=FULL),
    in_owner("a retry after the file has changed is refused", "S10", "no event is refused", 45,
             without(RESIDENCY, ("broken", "enter")), scenario=replace(CALM, file_changes=True)),
    in_owner("rest is told while SLEEP still wakes", "S7", "a load that waits for the token", 28,
             replace(at(LOAD, "unloading", "freed", do=("residency_freed", "rest")),
                     effects={**LOAD.effects, "rest": RESIDENCY.effects["rest"]}),
             at(RESIDENCY, "resident", "freed", do=()), scenario=FULL),
    in_owner("answers of the line queue behind a cancel", "S1", "the token's lock is held exactly in its states", 7,
             scenario=replace(CALM, mistake="answers queue behind the inbox")),
    in_owner("demand while asleep does not wake", "S2 S8", "a load that waits for the token", 3,
             at(SLEEP, "asleep", "demand", target="asleep", do=())),
    in_owner("the idle timer puts a model to sleep that somebody has just woken", "S2 A17", "a client that waits", 20,
             at(SLEEP, "awake", "idle_over", "demanded", target="falling_asleep", do=("token_release", "drain"))),
    in_owner("a door that is busy is given up", "S1", "a client that waits", 35,
             at(TOKEN, "doorway", "door_busy", target="asleep", do=())),
    in_owner("a cancel in the line is not answered", "S1 B5", "a client that waits", 40,
             at(TOKEN, "waiting", "cancel", do=(*LEAVE, "want_drop"))),
    in_owner("no room on the device has no edge", "S10 A6", "no event is refused", 14, without(TOKEN, ("waking", "map_failed"))),
    in_owner("a back-off that was called off still rings", "C18", "no event is refused", 8,
             scenario=replace(CALM, mistake="an old back-off rings")),
    in_owner("a model is freed without the answer to a move under way", "C18", "no event is refused", 34,
             at(RESIDENCY, "leaving", "freed", target="absent"), scenario=FULL),
    in_owner("sleep releases nothing", "S10 A16", "memory on the device only with the token", 27,
             at(RESIDENCY, "resident", "leave", "evict_kv", do=("report_left",))),
    in_owner("a wake brings back only what was asked for", "S6 A9 A10", "a batch runs only with everything on the device", 44,
             scenario=replace(CALM, mistake="the compute buffers do not come back")),
    in_owner("a failed restore keeps what it took", "S10 A13", "memory on the device only with the token", 44,
             scenario=replace(CALM, mistake="a failed restore keeps what it took")),
    in_owner("a second sleep is refused", "A14", "no event is refused", 43, without(RESIDENCY, ("away", "leave"))),
    in_owner("memory leaves under a running batch", "S10 A11", "the engine runs only when awake", 20,
             at(TOKEN, "awake", "look", "rested", "wanted", "due", target="sleeping", do=("device_unmap",))),
    in_owner("awake is told before the memory is back", "S6", "the engine runs only when awake", 9,
             at(at(TOKEN, "taking", "token_won", do=("want_drop", "tell_ready", "device_map")), "waking", "mapped", do=("hold_start",))),
    in_owner("the end of a release is not reported", "S9", "falling asleep", 27,
             at(RESIDENCY, "resident", "leave", "evict_kv", do=("release_compute", "release_weights", "release_kv"))),
    in_owner("failed is for ever", "S7 C6", "the model is awake", 12, without(LOAD, ("failed", "load"), ignored=True)),
    in_owner("a load that fails says nothing", "S7 C7", "a load under way", 11,
             scenario=replace(CALM, mistake="a failing load says nothing")),
    in_owner("a failed load keeps the token", "S7", "a load that waits for the token", 13, at(RESIDENCY, "arriving", "load_failed", do=())),
)  # fmt: skip

