"""Whether a model is awake, and who wants it to be.

Demand is a level, never a flag: the count of requests, loads and explicit wakes that need the model awake, kept by the owner.
`demand` is sent whenever the count grows, `relaxed` when it reaches zero.  Both lost wake-ups of S2 are edges here: demand that
came while falling asleep is found when the device has been left, and demand in `asleep` always starts a wake.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

SLEEP = Machine(
    name="sleep",
    initial="asleep",
    states={
        "asleep": "nothing runs; the token is not held and not asked for",
        "waking": "the token has been asked for; requests wait in the engine's queue",
        "awake": "the engine runs",
        "falling_asleep": "the engine stops at the next batch boundary, then memory and token are given back",
    },
    facts={"demanded": "at least one request, load or explicit wake needs the model awake"},
    effects={
        "token_need": "token: need",
        "token_cancel": "token: cancel",
        "token_release": "token: release",
        "engine_resume": "the engine may run batches; whoever waits until it is awake hears of it",
        "drain": "the engine stops at the next batch boundary -> token: drained",
        "idle_start": "if idle sleep is on: -> idle_over after --sleep-idle-seconds",
        "idle_stop": "forget the idle timer",
        "fail_demand": "every request, load and wake that waits ends with 503 and Retry-After",
    },
    edges=(
        E("asleep", "demand", "waking", do=("token_need",), why="also with idle sleep off: contention puts servers to sleep too (S8)"),
        E("waking", "device_ready", "awake", do=("engine_resume", "idle_start")),
        E("waking", "device_left", "asleep", do=("fail_demand",), why="the wake failed; the next demand tries again"),
        E("waking", "relaxed", "waking", when=("!demanded",), do=("token_cancel",), why="the token knows whether it is too late"),
        E("waking", "relaxed", "waking", when=("demanded",), why="somebody came meanwhile: keep the place in the line"),
        E("waking", "device_cancelled", "asleep", when=("!demanded",)),
        E("waking", "device_cancelled", "waking", when=("demanded",), do=("token_need",), why="somebody came after the cancel"),
        E("awake", "demand", "awake", do=("idle_stop",)),
        E("awake", "relaxed", "awake", when=("!demanded",), do=("idle_start",)),
        E("awake", "relaxed", "awake", when=("demanded",)),
        E("awake", "device_yielding", "falling_asleep", do=("idle_stop", "drain")),
        E("awake", "idle_over", "awake", when=("demanded",), why="a request came as the timer fired"),
        E("awake", "idle_over", "falling_asleep", when=("!demanded",), do=("token_release", "drain")),
        E("awake", "rest", "falling_asleep", do=("idle_stop", "token_release", "drain"), why="somebody asked for it by name"),
        E("falling_asleep", "device_left", "asleep", when=("!demanded",)),
        E("falling_asleep", "device_left", "waking", when=("demanded",), do=("token_need",), why="to the end of the line"),
    ),
    ignores=ignoring("demand", "waking", "falling_asleep")
    | ignoring("relaxed", "asleep", "falling_asleep")
    | ignoring("idle_over", "asleep", "waking", "falling_asleep")
    | ignoring("rest", "asleep", "waking", "falling_asleep")
    | ignoring("device_yielding", "falling_asleep"),
)
