"""Processes under one budget: what each has in the ledger and on the device, and what it has been asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

DEAD = "dead"  # killed; the kernel has not yet taken everything back
MOVES = ("clearing", "waking", "retrying")  # the token is held


class Process(NamedTuple):
    state: str = "asleep"
    todo: tuple[str, ...] = ()  # effects not yet performed, one act on the kernel each
    token: bool = False
    entry: int = 0  # what our page says
    old: int = 0  # what the page of a former life says
    memory: int = 0  # what we have on the device
    asks: tuple[int, ...] = ()  # for each process: how we have locked its bell, an `Ask`
    look: bool = False  # a look is due: a ring was heard, or a timer has fired
    young: bool = False  # the minimum hold is not over
    fresh: bool = False  # likewise in truth; `young` is what the process believes
    busy: bool = False  # a batch runs
    quantum: int = 0  # 0 not started, 1 started, 2 over
    needless: bool = False  # left although nobody asked


class Arena(NamedTuple):
    line: tuple[int, ...]  # who has a ticket, in order
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Every process needs `leaves` + `stays` units; the second part is the KV cache, which stays unless everything is asked for."""

    n: int = 2
    budget: int = 3
    leaves: int = 2
    stays: int = 0
    crash: bool = True
    escapes: bool = True  # cancels, releases, maps that fail
    rings_lost: bool = True
    serves: bool = True
    mistake: str = ""  # of the world, not of the table: see specs/planted_budget.py

    @property
    def needs(self) -> int:
        return self.leaves + self.stays
