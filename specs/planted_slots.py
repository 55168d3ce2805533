"""Mistakes between slots and requests: in their tables, or in how the scheduler joins them."""

from __future__ import annotations

from lsm.machines.request import REQUEST
from lsm.machines.slot import SLOT
from specs.planting import at, in_slots, without

TOGETHER = "a slot and its request belong together"
CACHE = "the cache holds what a slot believes"
REFUSED = "no event is refused, no cancel is without effect"

SLOTS = (
    in_slots("a failed decode leaves its rubbish in the cache", "F11", CACHE, 3, at(SLOT, "started", "fail", do=()),
             at(SLOT, "processing_prompt", "fail", do=()), at(SLOT, "generating", "fail", do=())),
    in_slots("a failed batch ends one of its requests", "F11", CACHE, 4, mistake="a failed batch ends one request"),
    in_slots("a cancelled request keeps its slot", "I1", TOGETHER, 3, at(REQUEST, "generating", "cancel", do=("report_cancelled",))),
    in_slots("a request that was cancelled in the queue is run", "I2", "exactly those who wait are in the queue", 2,
             mistake="cancelled ones stay in the queue"),
    in_slots("a cancel during the prompt has no effect", "I3", REFUSED, 4, without(REQUEST, ("prefilling", "cancel"), ignored=True)),
    in_slots("a cancel between accepting and queueing leaves a dead request in the queue", "I5", "exactly those who wait are in the queue",
             3, mistake="queued in two steps"),
    in_slots("a cancel is refused in the queue", "B14", REFUSED, 2, without(REQUEST, ("queued", "cancel"))),
    in_slots("a failure is not told", "P2", "each end is told once", 3, at(REQUEST, "generating", "fail", do=("slot_fail",))),
    in_slots("an end is told twice", "L5", "each end is told once", 2,
             at(REQUEST, "generating", "finish", do=("slot_finish", "report_done", "report_done"))),
    in_slots("a slot cannot be freed in the middle of a prompt", "P2", REFUSED, 5, without(SLOT, ("processing_prompt", "finish"))),
    in_slots("a slot is given to two requests", "P3", REFUSED, 3, mistake="busy slots are given"),
    in_slots("the whole prompt is taken from the cache, and nothing gives logits", "F12", "request 1 under way", 4,
             mistake="the whole prompt is taken from the cache"),
    in_slots("equal times of use select no slot", "F14", "request 0 under way", 1, mistake="equal times of use select no slot"),
    in_slots("whoever came last is served first", "C16", "request 0 under way", 4, mistake="newest first"),
    in_slots("prompts go before tokens", "P16", "request 0 under way", 3, mistake="prompts go before tokens"),
)  # fmt: skip
