"""Mistakes in sharing a device under a budget: in TOKEN, in the ledger, in whoever asks and whoever is asked."""

from __future__ import annotations

from lsm.machines import TOKEN
from lsm.machines.token import LEAVE
from specs.planted_line import hasty
from specs.planting import at, edited, in_budget
from specs.worlds.budget_state import Scenario

FIT = Scenario(n=2, budget=4, leaves=2)
APART = Scenario(n=2, budget=3, leaves=2)  # one at a time
CACHES = Scenario(n=2, budget=2, leaves=1, stays=1)  # likewise, and no KV cache may stay beside another model


BUDGET = (
    in_budget("memory is taken before it is in the ledger", "A5 D6", "everything on the device is in the ledger", 5, FIT,
              mistake="written after the memory was taken"),
    in_budget("a page is struck out before the memory has left", "A5", "everything on the device is in the ledger", 9, APART,
              mistake="struck out before the memory has left"),
    in_budget("the bytes of a dead process are given away too early", "C9 D3", "everything on the device is in the ledger", 11, APART,
              mistake="the bytes of the dead do not count"),
    in_budget("the bytes of a dead process count for ever", "C9 D3", "process 0 is awake", 4, APART,
              mistake="the bytes of the dead count for ever"),
    in_budget("the budget is exceeded by one unit", "P11", "the ledger has no more than the budget", 10, APART,
              mistake="one unit too much"),
    in_budget("an ask is lost, and nobody rings again", "S1", "who has a ticket waits", 11, APART, mistake="nobody rings again"),
    in_budget("memory is taken before others have left", "P11", "the device has no more than the budget", 14, APART,
              table=at(TOKEN, "clearing", "look", target="waking", do=("asks_drop", "device_map"))),
    in_budget("the token is dropped while others are asked", "P3", "memory is moved in with the token", 4, APART,
              table=at(TOKEN, "taking", "token_won", "!alone", do=("want_drop", "room_look", "token_drop"))),
    in_budget("who gives up asks on", "S2", "only who has the token asks", 13, APART,
              table=at(TOKEN, "clearing", "cancel", do=("token_drop", *LEAVE, "tell_cancelled"))),
    in_budget("whoever has its memory keeps the token", "S1", "who serves or sleeps lets others move", 5, FIT,
              table=at(TOKEN, "waking", "mapped", "budgeted", do=("hold_start", "tell_ready"))),
    in_budget("a ring is believed, and nobody is asked for the lock", "S1", "nobody leaves for nothing", 9, APART,
              table=at(TOKEN, "awake", "look", "rested", "!wanted", target="draining", do=("tell_yielding",))),
    in_budget("a model is sent away within its minimum hold", "S3", "contention respects the minimum hold", 11, APART,
              table=edited(TOKEN, hasty), mistake="the hold protects nobody"),
    in_budget("a page is not struck out after a sleep", "A5", "who has a ticket waits", 11, APART,
              table=at(TOKEN, "sleeping", "unmapped", do=("token_drop", *LEAVE, "tell_left"))),
    in_budget("a KV cache that stayed is never given", "B9", "who has a ticket waits", 16, CACHES, mistake="what stayed is never given"),
    in_budget("a busy model is never sent away", "S3 P5", "who has a ticket waits", 14, APART, mistake="yields only when idle"),
)  # fmt: skip
