"""Mistakes with snapshots: in their table, or in how a slot uses them."""

from __future__ import annotations

from lsm.machines.checkpoint import CHECKPOINT
from specs.planting import at, in_checkpoints, without

REFUSED = "no event is refused"
HOLDS = "the memory holds what the slot believes"
OF_THE_SLOT = "a snapshot is of what it says, and of the slot"
RESUMES = "a prompt resumes where a snapshot was due"

CHECKPOINTS = (
    in_checkpoints("the memory is looked at before it is back", "S6", "the memory is looked at only when it is on the device", 3,
                   mistake="a step runs before the memory is back"),
    in_checkpoints("the snapshot before the end of the prompt is left out", "S11", RESUMES, 4,
                   mistake="the snapshot before the end is left out"),
    in_checkpoints("a full list takes no new snapshot", "F5", RESUMES, 8, mistake="a full list takes no new one"),
    in_checkpoints("an ordinary next turn drops all snapshots", "F4", "a snapshot that is of the prompt is not dropped", 4,
                   mistake="an ordinary next turn drops all snapshots"),
    in_checkpoints("decoding goes on behind what the snapshot has", "F1", HOLDS, 4,
                   mistake="decoding goes on behind what the snapshot has"),
    in_checkpoints("a snapshot beyond the common prefix is put back", "S11", "what is in the memory is of the prompt", 4,
                   mistake="a snapshot beyond the common prefix is put back"),
    in_checkpoints("a snapshot is taken behind the batch", "S11", OF_THE_SLOT, 3, mistake="a snapshot is taken behind the batch"),
    in_checkpoints("snapshots of another prompt are kept", "S11", OF_THE_SLOT, 5,
                   at(CHECKPOINT, "following", "match", "in_memory", do=("trim",))),
    in_checkpoints("after going back, snapshots of what was left stay", "S11", OF_THE_SLOT, 7,
                   at(CHECKPOINT, "following", "match", "!in_memory", "found", do=("restore",))),
    in_checkpoints("a snapshot that cannot be put back leaves its rubbish", "F6", HOLDS, 4,
                   at(CHECKPOINT, "restoring", "refused", do=("forget_all",))),
    in_checkpoints("no memory for a snapshot has no edge", "P16", REFUSED, 3, without(CHECKPOINT, ("saving", "refused"))),
    in_checkpoints("the whole prompt is taken from the memory of one slot", "F12", "a prompt under way", 3,
                   mistake="the whole prompt is taken from the memory"),
    in_checkpoints("a slot is cleared before its state is copied", "F11", "what is stored is of what it says, with its own snapshots", 3,
                   mistake="the slot is cleared before its state is copied", stash=True),
    in_checkpoints("a cached prompt comes back without its snapshots", "S11", OF_THE_SLOT, 6,
                   mistake="an entry comes back without its snapshots", stash=True),
    in_checkpoints("a cached prompt that cannot be put back leaves its rubbish", "F6", HOLDS, 5,
                   mistake="an entry that cannot be put back leaves its rubbish", stash=True),
    in_checkpoints("wrong guesses stay in the memory", "S19", HOLDS, 2, mistake="wrong guesses stay in the memory", guesses=True),
    in_checkpoints("what left the memory with a wrong guess is not decoded again", "S19", HOLDS, 2,
                   mistake="what left with a wrong guess is not decoded again", guesses=True),
    in_checkpoints("the memory of the draft model is ahead of its target's", "S22", "guesses are made from the slot's text", 4,
                   mistake="the draft model goes on behind what the slot has forgotten", guesses=True),
)  # fmt: skip
