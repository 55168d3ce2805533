"""Processes in one arena: what each has locked, and the line of tickets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NOBODY = -1  # in `line`: a ticket file that nobody has locked; in `watch`: no look has been taken
FIRST = -2  # the look found nobody ahead
GONE = -3  # the watched ticket was let go; nobody locks it again

DEAD = "dead"  # killed; the kernel has not yet taken everything back
HOLDS = ("waking", "retrying", "awake", "draining", "sleeping")  # the token is held
LINED = ("waiting", "taking", *HOLDS)  # a ticket is held


class Process(NamedTuple):
    state: str = "asleep"
    todo: tuple[str, ...] = ()  # effects not yet performed, one kernel call each
    door: bool = False
    want: bool = False
    ticket: bool = False  # our ticket is locked
    token: bool = False
    resident: bool = False
    watch: int = NOBODY  # whose ticket is watched, or FIRST, GONE, NOBODY
    young: bool = False  # the minimum hold is not over
    busy: bool = False  # a batch runs
    quantum: int = 0  # 0 not started, 1 started, 2 over
    look: bool = False  # a look is due: a ring was heard, or a timer has fired
    fresh: bool = False  # the minimum hold is not over in truth; `young` is what the process believes
    needless: bool = False  # gave the device away although nobody waited
    ghost: int = NOBODY  # whose ticket has got our old name; only after a planted mistake


class Arena(NamedTuple):
    line: tuple[int, ...]  # owners of the ticket files, in the order of their numbers
    processes: tuple[Process, ...]
    stranger: bool = False  # a program outside the line holds token.lock


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong, and what the environment does.  Everything, unless a planted mistake is to be seen alone."""

    crash: bool = True  # kill -9 between any two kernel calls
    cancel: bool = True
    line_fails: bool = True  # full disk, arena deleted, no descriptors
    rings_lost: bool = True
    slow_check: bool = True  # every few seconds the level state is looked at
    stranger: bool = True
    map_fails: bool = True  # even when there is room
    serves: bool = True  # the holder has work
    releases: bool = True  # the holder wants to sleep by itself
    mistake: str = ""  # of the world, not of the table: see specs/planted.py
