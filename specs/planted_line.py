"""Mistakes in the line of processes: in TOKEN, in the kernel's side of it, in whoever else has the descriptors."""

from __future__ import annotations

from dataclasses import replace

from lsm.machines import TOKEN
from lsm.machines.table import Edge
from lsm.machines.token import LEAVE
from specs.planting import QUIET, at, edited, in_line, swapped

STILL = replace(QUIET, crash=False, cancel=False, line_fails=False, serves=False, slow_check=False)  # nobody does anything but take turns


def hasty(edge: Edge) -> Edge:
    """A look that does not ask whether the minimum hold is over."""
    if edge.event != "look":
        return edge
    if edge.when == ("!rested",):
        return replace(edge, when=("wanted", "!wanted"))  # never
    return replace(edge, when=tuple(fact for fact in edge.when if fact != "rested"))


LINE = (
    in_line("the token goes before the memory", "S10", "resident holds the token", 19,
            at(TOKEN, "draining", "drained", do=("device_unmap", "token_drop"))),
    in_line("the memory stays", "S10", "resident holds the token", 19,
            at(TOKEN, "draining", "drained", target="asleep", do=("token_drop", *LEAVE, "tell_left"))),
    in_line("the ticket goes before the token", "S1", "the first finds the token free of the living", 26,
            at(TOKEN, "sleeping", "unmapped", do=(*LEAVE, "token_drop", "tell_left"))),
    in_line("the ticket is closed before it is unlinked", "S1", "a live ticket is listed", 16,
            edited(TOKEN, lambda edge: swapped(edge, "ticket_unlink", "ticket_close")), n=3),
    in_line("no second look when the one ahead is gone", "S1", "nobody is overtaken", 24,
            at(TOKEN, "waiting", "ahead_gone", target="taking", do=("token_try",)), n=3),
    in_line("numbers are given out without the door", "S1", "a live ticket is listed", 9,
            faults=replace(QUIET, mistake="no door")),
    in_line("the ticket is locked after the door is open", "S1", "a live ticket is listed", 10,
            at(TOKEN, "joining", "made", do=("door_open", "ticket_lock", "bell_ring", "look_ahead"))),
    in_line("waiters sweep dead tickets outside the door", "S1", "a live ticket is listed", 13,
            faults=replace(QUIET, mistake="waiters sweep"), n=3),
    in_line("ticket files are used again", "S1", "nobody waits for one behind", 25,
            faults=replace(QUIET, mistake="slots are used again"), n=3),
    in_line("the bell is rung before wanting can be seen", "S1", "who waits is seen", 5,
            faults=replace(QUIET, mistake="rings before it wants")),
    in_line("a lost ring, and nobody looks now and then", "S1", "process 0 is awake", 21,
            faults=STILL),
    in_line("a cancel keeps its share of want.lock", "S1", "asleep keeps nothing", 11,
            at(TOKEN, "waiting", "cancel", do=LEAVE)),
    in_line("a full disk leaves the door shut", "S1", "asleep keeps nothing", 5,
            at(TOKEN, "joining", "line_failed", do=("want_drop", "tell_left"))),
    in_line("the minimum hold is not asked for", "S3", "contention respects the minimum hold", 17, edited(TOKEN, hasty)),
    in_line("the token is let go while a map is tried again", "S10", "the token is held exactly in its states", 13,
            at(TOKEN, "waking", "map_failed", "patient", do=("token_drop", "backoff_start")), replace(QUIET, map_fails=True)),
    in_line("a ring is believed, and nobody is asked", "S1", "nobody gives the device away for nothing", 14,
            at(TOKEN, "awake", "look", "rested", "!wanted", target="draining", do=("tell_yielding",))),
    in_line("a ring that came during the restore is lost, and nobody looks after it", "S1", "process 0 is awake", 13,
            faults=replace(STILL, rings_lost=False, mistake="no look when the hold is over")),
    in_line("whoever slept takes the token past the line", "S1", "the token is taken from the line", 2,
            at(TOKEN, "asleep", "need", target="taking", do=("token_try",))),
    in_line("the share of want.lock is kept with the token", "S1", "asleep keeps nothing", 21,
            at(TOKEN, "taking", "token_won", do=("device_map",))),
    in_line("the ticket is kept while asleep", "S1", "asleep keeps nothing", 20,
            at(TOKEN, "sleeping", "unmapped", do=("token_drop", "tell_left"))),
    in_line("the minimum hold is not started", "S3", "contention respects the minimum hold", 17,
            at(TOKEN, "waking", "mapped", do=("tell_ready",))),
    in_line("a child that inherited the descriptor keeps the token", "D1", "process 0 is awake", 11,
            faults=replace(QUIET, mistake="a child keeps the token")),
    in_line("a child that inherited the descriptor lets go of the token", "D2", "the token is held exactly in its states", 11,
            faults=replace(QUIET, mistake="a child lets go")),
    in_line("the memory of a dead process stays for ever", "C9 D3", "process 0 is awake", 13,
            faults=replace(QUIET, mistake="the dead keep their memory")),
)  # fmt: skip

