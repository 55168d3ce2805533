"""What each step of a world is, in words.  The label of a step is `KIND` or `KIND.NUMBER`; the longest kind that fits counts."""

from __future__ import annotations

WHO = {"line": "process", "owner": "client", "slots": "request", "snapshots": "slot"}  # the number in a label

LINE = {
    "ahead_gone": "hears that the ticket it watched was let go",
    "backoff_over": "tries to map once more",
    "bell_ring": "rings the holder's bell",
    "bell_lost": "rings, and the ring is lost",
    "cancel": "gives up its place",
    "child_lets_go": "has a child that unlocks the token which it inherited",
    "crash": "is killed with -9",
    "done": "has finished its batch",
    "door_busy": "finds the door busy",
    "door_lock": "locks the door",
    "door_open": "opens the door",
    "door_won": "shares want.lock",
    "drained": "has run its last batch",
    "first": "finds nobody alive ahead",
    "free_door": "is dead, and the kernel frees the door",
    "free_ticket": "is dead, and the kernel frees its ticket",
    "free_token": "is dead, and the kernel frees the token",
    "free_want": "is dead, and the kernel frees its share of want.lock",
    "hold_over": "has held the device for the minimum",
    "line_failed": "finds the arena deleted, the disk full or no descriptor left",
    "look": "looks whether somebody waits",
    "look_ahead": "looks for the nearest live ticket ahead",
    "made": "has swept dead tickets and made its own",
    "map_failed": "finds no room on the device",
    "mapped": "has mapped its memory",
    "need": "wants the device",
    "quantum_over": "has used up the quantum",
    "reap": "is dead, and the device frees its memory",
    "release": "wants to sleep",
    "restart": "is started again",
    "serve": "begins a batch",
    "slow_check": "is due for its look of every few seconds",
    "stranger": "a program outside the line takes the token, or lets it go",
    "ticket_close": "closes its ticket",
    "ticket_lock": "locks its ticket",
    "ticket_unlink": "unlinks the name of its ticket",
    "ticket_spoiled": "cannot lock its ticket",
    "token_busy": "finds the token taken",
    "token_drop": "unlocks the token",
    "token_won": "gets the token",
    "want_drop": "lets its share of want.lock go",
    "unmapped": "has freed its memory",
}
OWNER = {
    "batch": "the engine runs a batch",
    "call.load": "somebody asks for a load",
    "call.rest": "somebody asks for sleep",
    "call.unload": "somebody asks for an unload",
    "cancel": "goes away",
    "come": "comes with a request",
    "engine.drain": "the engine thread stops between two batches",
    "engine.fail": "the engine thread fails the requests it was told to",
    "engine.free": "the engine thread frees model and context",
    "engine.left": "the engine thread reports that all was released",
    "engine.load_starts": "the engine thread begins to load",
    "engine.loaded": "the engine thread has loaded",
    "engine.nothing_to_restore": "the engine thread finds no model to restore",
    "engine.release_": "the engine thread releases one class of memory",
    "engine.restore_starts": "the engine thread begins to restore",
    "engine.restored": "the engine thread has restored everything",
    "engine.resume": "the engine thread may run batches",
    "fault.changed": "the file is found to be another one",
    "fault.doorway": "the arena is deleted, or no descriptor is left, at the door",
    "fault.joining": "the disk is full when the ticket is made",
    "fault.load": "the load fails",
    "fault.restore": "the restore fails",
    "fault.taking": "the arena is gone when the token is tried",
    "fault.waiting": "the arena is gone while waiting",
    "handle.": "the owner handles the first event of its inbox",
    "line.door_busy": "the door is busy",
    "line.first": "nobody alive is ahead in the line",
    "line.joined": "the door is passed, a ticket made",
    "line.token_busy": "the token is not free yet",
    "line.won": "the token is won",
    "look.False": "the owner looks, and nobody waits",
    "look.True": "the owner looks, and somebody waits",
    "timer.backoff": "the back-off is over",
    "timer.hold": "the minimum hold is over",
    "timer.idle": "the idle time is over",
    "timer.quantum": "the quantum is over",
    "wake": "waits until the model is awake",
}
SLOTS = {
    "cancel": "is cancelled",
    "come": "is submitted",
    "fault.all": "everything is failed, as for an unload",
    "fault.come": "is submitted, and cannot be done",
    "fault.decode": "a batch is filled, and its decode fails",
    "fault.room": "a batch is filled, and a row of it finds no room in the cache",
    "queue": "is put into the queue",
    "room": "an idle slot is cleared to make room",
    "step": "slots are given out, a batch is filled and decoded",
}
SNAPSHOTS = {
    "ask": "a prompt comes, and the memory is brought to what the slot shares with it",
    "back": "the memory comes back to the device",
    "cancel": "the request is cancelled",
    "fault.all": "everything is failed, as for an unload",
    "fault.ask": "a prompt comes, and the snapshot it should resume from cannot be put back",
    "fault.decode": "a decode fails",
    "fault.save": "the host has no memory for the snapshot; a batch is decoded",
    "leave": "the memory leaves the device",
    "room": "the idle slot is cleared to make room",
    "step": "a batch is decoded, after a snapshot where one is due",
}
WORDS = {"line": LINE, "owner": OWNER, "slots": SLOTS, "snapshots": SNAPSHOTS}


def words(world: str, label: str) -> str:
    """One step as a clause.  Raises KeyError for a label that has no words."""
    known = WORDS[world]
    kind, _, number = label.partition(" ")[0].rpartition(".")
    if number.isdigit() and kind in known:
        alone = known[kind].startswith(("a ", "an "))
        return known[kind] if alone else f"{WHO[world]} {number} {known[kind]}"
    kind = max((kind for kind in known if label.startswith(kind)), key=len, default="")
    return known[kind]
