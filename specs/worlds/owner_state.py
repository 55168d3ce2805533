"""The owner of one model: its four machines, its inbox, its engine thread, its clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COMPUTE, WEIGHTS, KV = 1, 2, 4  # classes of device memory, as bits
ALL = COMPUTE | WEIGHTS | KV
HOLDS = ("clearing", "waking", "retrying", "awake", "draining", "sleeping")  # states of TOKEN in which token.lock is held
MOVES = ("clearing", "waking", "retrying")  # likewise under a budget
BATCHES = 2  # decoded for each request, so that it can be paused in the middle
WAKES = 3  # what a client has instead, while it only waits until the model is awake


class Owner(NamedTuple):
    token: str = "asleep"
    sleep: str = "asleep"
    load: str = "unloaded"
    residency: str = "absent"
    inbox: tuple[str, ...] = ()  # "machine:event", first come, first served
    jobs: tuple[str, ...] = ()  # for the engine thread, first come, first served; "...!" is being done
    context: bool = False  # the engine has a model
    running: bool = False  # the engine may run batches
    device: int = 0  # classes with memory on the device
    locked: bool = False  # token.lock is held
    charged: int = 0  # under a budget: classes that stand in the ledger
    booked: bool = False  # likewise: room was found, and everything is about to come
    asked: int = 0  # likewise: how much of it somebody wants, an `Ask`
    demand: int = 0  # the owner's count
    clients: tuple[int, ...] = ()  # batches that each one's request still needs; 0: asks for nothing
    idle_timer: bool = False
    young: bool = False  # the minimum hold is not over
    quantum: int = 0  # 0 not started, 1 started, 2 over
    progress: bool = False  # a batch was run since the last wake
    refused: str = ""  # an event that some table refused: a mistake


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the environment may do."""

    clients: int = 2
    inbox_limit: int = 3  # nobody outside posts into an inbox that is this long; what machines tell each other always fits
    idle_sleep: bool = True
    evict_kv: bool = True
    load_calls: bool = True  # load and unload at any time; without it the model is loaded until that succeeds, and stays
    wake_calls: bool = True
    rest_calls: bool = True
    file_changes: bool = True
    line_fails: bool = True
    weights_get_lost: bool = False  # they made room for an encoder, and did not come back
    budget: bool = False  # others are beside us, and ask us for our memory
    mistake: str = ""  # of the world, not of a table: see specs/planted.py
