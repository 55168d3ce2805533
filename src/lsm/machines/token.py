"""Who may hold the device, first come, first served.  flock is the truth; a FIFO is only the bell.

One instance for each model; its owner performs the effects on an `arena.Line`.  The protocol, and why it is right: docs/token.md.

Without a budget the token is the right to have a model in device memory, and is held as long as that.  Under a budget it is the right to
take device memory: whoever has got it, and has written into the ledger how much, hands the token on and stays.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

# In this order: a name that is unlinked after the lock is gone may already be a newborn ticket's.
LEAVE = ("ticket_unlink", "ticket_close")

TOKEN = Machine(
    name="token",
    initial="asleep",
    states={
        "asleep": "no lock, no ticket, nothing in device memory",
        "doorway": "trying door.lock, never blocking; nothing else is held",
        "joining": "door.lock and a share of want.lock are held; the ticket is being made",
        "waiting": "a ticket and a share of want.lock are held; asleep on the nearest live ticket ahead",
        "taking": "no live ticket is ahead; one non-blocking try on token.lock is under way",
        "clearing": "ticket and token are held; others were asked to leave, or the memory of the dead is awaited",
        "waking": "ticket and token are held; device memory is being mapped",
        "retrying": "ticket and token are held; the device had no room, a dead peer's memory may still be freed",
        "awake": "resident; serving; ticket and token are held, but not under a budget",
        "draining": "resident; the running batch is the last one; otherwise as awake",
        "sleeping": "device memory is being freed; what was held is held still",
    },
    facts={
        "alone": "no budget is given here, and nobody has bytes in the ledger: the token is enough",
        "budgeted": "a budget is given here: what is in the ledger may stay without the token",
        "wanted": "somebody waits: want.lock is refused to our second descriptor; under a budget: our bell has been locked by who asks",
        "rested": "the minimum hold has passed since `mapped`",
        "due": "nothing runs here, or the quantum has passed since somebody was first seen waiting",
        "patient": "the failure may pass, somebody still needs the device, and with this one fewer than the allowed attempts have failed",
    },
    effects={
        "door_try": "flock(door, EX|NB), then flock(want, SH|NB): both or neither -> door_won | door_busy",
        "ticket_make": "list, unlink dead tickets, mkfifo(1 + highest) -> made | line_failed",
        "ticket_lock": "open the ticket O_RDWR, flock(ticket, EX|NB): nobody else ever asks for EX",
        "door_open": "flock(door, UN)",
        "bell_ring": "one byte into the holder's FIFO, non-blocking; may be lost",
        "look_ahead": "find the nearest live ticket ahead and watch it -> ahead_gone; or nobody is there -> first",
        "token_try": "flock(token, EX|NB) -> token_won | token_busy",
        "room_look": "has the budget room for what we need? Write it into the ledger -> room; else ask the cheapest to leave -> look",
        "asks_drop": "unlock the bells of those who were asked",
        "discharge": "write what we have left into the ledger, and ring for whoever needs it",
        "token_drop": "flock(token, UN)",
        "ticket_unlink": "unlink our name",
        "ticket_close": "close the ticket: its lock and its write end go together",
        "want_drop": "flock(want, UN)",
        "device_map": "residency: enter -> mapped | map_failed",
        "device_unmap": "residency: leave -> unmapped",
        "backoff_start": "-> backoff_over, later each time",
        "hold_start": "look again when the minimum hold has passed",
        "quantum_start": "look again when the quantum has passed",
        "quantum_stop": "forget the quantum",
        "tell_ready": "sleep: device_ready",
        "tell_yielding": "sleep: device_yielding -> drained",
        "tell_left": "sleep: device_left",
        "tell_cancelled": "sleep: device_cancelled",
    },
    edges=(
        E("asleep", "need", "doorway", do=("door_try",)),
        E("doorway", "door_busy", "doorway", do=("door_try",), why="non-blocking, so that cancel always works"),
        E("doorway", "door_won", "joining", do=("ticket_make",)),
        E("doorway", "cancel", "asleep", do=("tell_cancelled",)),
        E("doorway", "line_failed", "asleep", do=("tell_left",), why="the arena was deleted, or no descriptor is left"),
        E("joining", "made", "waiting", do=("ticket_lock", "door_open", "bell_ring", "look_ahead")),
        E("joining", "line_failed", "asleep", do=("want_drop", "door_open", "tell_left"), why="full disk: only new arrivals are refused"),
        E("waiting", "ahead_gone", "waiting", do=("look_ahead",), why="it may have died in the middle of the line"),
        E("waiting", "first", "taking", do=("token_try",)),
        E("waiting", "cancel", "asleep", do=(*LEAVE, "want_drop", "tell_cancelled")),
        E("waiting", "line_failed", "asleep", do=(*LEAVE, "want_drop", "tell_left")),
        E("taking", "token_busy", "taking", do=("token_try",), why="a stranger, or a dying holder whose ticket went first"),
        E("taking", "token_won", "waking", when=("alone",), do=("want_drop", "device_map")),
        E("taking", "token_won", "clearing", when=("!alone",), do=("want_drop", "room_look")),
        E("taking", "cancel", "asleep", do=(*LEAVE, "want_drop", "tell_cancelled")),
        E("taking", "line_failed", "asleep", do=(*LEAVE, "want_drop", "tell_left")),
        E("clearing", "look", "clearing", do=("room_look",), why="somebody has left or died, or what was asked may have been missed"),
        E("clearing", "room", "waking", do=("asks_drop", "device_map"), why="it is written already: if we die, our bytes are known"),
        E("clearing", "cancel", "asleep", do=("asks_drop", "token_drop", *LEAVE, "tell_cancelled")),
        E("clearing", "line_failed", "asleep", do=("asks_drop", "token_drop", *LEAVE, "tell_left"), why="never enough, or no arena"),
        E("waking", "mapped", "awake", when=("!budgeted",), do=("hold_start", "tell_ready")),
        E("waking", "mapped", "awake", when=("budgeted",), do=("token_drop", *LEAVE, "hold_start", "tell_ready"), why="the ledger has it"),
        E("waking", "map_failed", "retrying", when=("patient",), do=("backoff_start",), why="a dead peer's memory may outlive its flock"),
        E("waking", "map_failed", "sleeping", when=("!patient",), do=("device_unmap",)),
        E("retrying", "backoff_over", "waking", do=("device_map",)),
        E("awake", "look", "awake", when=("!rested",), why="hold_start looks again"),
        E("awake", "look", "awake", when=("rested", "!wanted"), do=("quantum_stop",), why="else a later waiter meets an old clock"),
        E("awake", "look", "awake", when=("rested", "wanted", "!due"), do=("quantum_start",)),
        E("awake", "look", "draining", when=("rested", "wanted", "due"), do=("tell_yielding",)),
        E("awake", "release", "draining", why="the owner wants to sleep: idle for long, or told to"),
        E("draining", "drained", "sleeping", do=("device_unmap",)),
        E("sleeping", "unmapped", "asleep", do=("discharge", "token_drop", *LEAVE, "tell_left"), why="only after the memory"),
    ),
    ignores=ignoring("need", "doorway", "joining", "waiting", "taking", "clearing", "waking", "retrying", "awake", "draining", "sleeping")
    | ignoring("look", "asleep", "doorway", "joining", "waiting", "taking", "waking", "retrying", "draining", "sleeping")
    | ignoring("cancel", "asleep", "joining", "waking", "retrying", "awake", "draining", "sleeping")
    | ignoring("release", "asleep", "draining", "sleeping"),
)
