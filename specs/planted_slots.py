"""Mistakes between slots and requests: in their tables, or in how the scheduler joins them."""

from __future__ import annotations

from lsm.machines.request import REQUEST
from lsm.machines.slot import SLOT
from specs.planting import at, in_slots, without
from specs.worlds.slots_state import ANY, CHOICES, LEAD, OTHER, SHIFT, Scenario

TOGETHER = "a slot and its request belong together"
CACHE = "the cache holds what a slot believes"
REFUSED = "no event is refused, no cancel is without effect"

PROMPT = "a choice waits for a prompt that is being decoded"
CROWD = Scenario(kinds=(LEAD, OTHER, ANY, ANY))

SLOTS = (
    in_slots("a choice waits for ever when the one with the prompt fails", "P2", PROMPT, 1,
             at(REQUEST, "queued", "fail", do=("report_failed",)), scenario=CHOICES),
    in_slots("a choice is not told that the prompt failed", "P2", "request 1 under way", 2,
             at(REQUEST, "prefilling", "fail", do=("slot_fail", "report_failed")), scenario=CHOICES, faults=True),
    in_slots("a choice that waits cannot be cancelled", "P13", REFUSED, 3, without(SLOT, ("wait_other", "finish")), scenario=CHOICES),
    in_slots("the prompt is not copied", "F12", REFUSED, 3, at(SLOT, "wait_other", "share", do=()), scenario=CHOICES),
    in_slots("who needs two slots is passed by others for ever", "C16", "request 0 under way", 4,
             mistake="others pass who needs several slots", scenario=CROWD),
    in_slots("a shift moves the cells of a busy slot", "K5", CACHE, 3, mistake="a shift moves the cells of a busy slot", scenario=SHIFT),
    in_slots("a shift moves the cells of an idle slot, which still believes in them", "F11", CACHE, 3,
             mistake="who shared the cells still believes in them", scenario=SHIFT),
    in_slots("a full slot has no way out", "P9", REFUSED, 3, without(SLOT, ("generating", "full")), scenario=SHIFT),
    in_slots("a batch stays halved", "P16", "batches are of full size", 2, mistake="a halved batch stays so", faults=True),
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
