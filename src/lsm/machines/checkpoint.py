"""A slot's way back: how its memory is brought to the prefix that a new prompt shares with it, and what is kept for the next time.

Attention forgets its last tokens at will.  Recurrent states and sliding windows cannot: there a snapshot of an earlier prefix is put back,
or all is decoded again.  Moved once for each prompt and snapshot, never for each token.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine

CHECKPOINT = Machine(
    name="checkpoint",
    initial="following",
    states={
        "following": "the memory holds the slot's tokens; each snapshot is of a prefix that the slot holds or is about to decode",
        "restoring": "a snapshot is being put back: what the memory holds is known when that is done",
        "saving": "a snapshot is being taken, before the batch that goes beyond it",
    },
    facts={
        "in_memory": "the memory can go back by itself to the prefix that stays",
        "found": "a snapshot lies within the prefix that the prompt and the slot share",
    },
    effects={
        "forget_beyond": "drop the snapshots that go beyond the prefix that both share, and no other",
        "forget_all": "drop every snapshot: the memory they belong to is gone",
        "trim": "the memory forgets everything behind the prefix that stays",
        "clear": "the memory forgets everything; the prompt is decoded from its beginning",
        "restore": "put the latest snapshot within the prefix back -> restored | refused",
        "make_room": "drop the snapshot that is replaced, then those too close to others, then the oldest",
        "save": "copy the parts of the memory that cannot lose single tokens -> saved | refused",
        "keep": "the new snapshot joins the others",
    },
    edges=(
        E("following", "match", "following", when=("in_memory",), do=("forget_beyond", "trim")),
        E("following", "match", "restoring", when=("!in_memory", "found"), do=("forget_beyond", "restore")),
        E("following", "match", "following", when=("!in_memory", "!found"), do=("forget_beyond", "clear")),
        E("restoring", "restored", "following", do=("trim",)),
        E("restoring", "refused", "following", do=("forget_all", "clear"), why="correct beats fast: an unusable snapshot is no error (F6)"),
        E("following", "due", "saving", do=("make_room", "save")),
        E("saving", "saved", "following", do=("keep",)),
        E("saving", "refused", "following", why="the host has no memory for it: the prompt goes on without"),
        E("following", "lost", "following", do=("forget_all",), why="the sequence was cleared"),
    ),
)
