"""What must hold at every moment of a simulated run.  Raises `Violation` at the first thing that does not.

It believes the kernel's answers and the device, not the machines: those are what is judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from lsm.runtime.changes import Changes
from lsm.runtime.line_effects import SLOW_CHECK_S
from lsm.runtime.owner import BACKOFF_MIN_S, MAP_ATTEMPTS, Owner
from specs.simulation.chance import Chance
from specs.simulation.durations import BUSY_MAX_S, LOAD_MAX_S
from specs.simulation.kernel import TICKET, Kernel, Place, Process

BEFORE_MAPPED_S = BACKOFF_MIN_S * 2 ** (MAP_ATTEMPTS - 2) + LOAD_MAX_S  # a pause and an attempt that are under way are not broken off
ON_THE_DEVICE = ("arriving", "resident", "leaving", "entering", "orphaned")
MOVING_IN = ("arriving", "entering")
MOVES = ("clearing", "waking", "retrying")
TOKEN_HELD = ("waking", "retrying", "awake", "draining", "sleeping")
LOADS_WAIT = ("queued", "loading", "aborting")
LATE_S = 0.1 + 6 * BUSY_MAX_S  # mail; and the events from a ring to the release, each of them late


class Violation(Exception):
    """Something that must hold does not."""


@dataclass(eq=False)
class Stay:
    """How long the holder has stayed while others waited, since it may be asked to go."""

    mapped_at: float | None = None
    contended_since: float | None = None
    needed_until: float | None = None  # since when it has had no request (before `mapped_at`: nobody at all); None: it has one
    rings_lost_before: int = 0


@dataclass(eq=False)
class Judge:
    min_hold_s: float
    quantum_s: float
    leave_s: float  # the longest batch, and the longest release of all classes
    budgeted: bool = False
    holder: Place | None = None
    standing: dict[Place, int] = field(default_factory=dict)
    wanting: dict[Place, float] = field(default_factory=dict)
    handoffs: int = 0
    longest_stay_s: float = 0.0
    kernel: Kernel = field(init=False)
    _owners: dict[Place, Owner] = field(default_factory=dict)
    _retrying: set[Place] = field(default_factory=set)
    _last: Place | None = None
    _stay: Stay = field(default_factory=Stay)

    def make_kernel(self, chance: Chance) -> Kernel:
        self.kernel = Kernel(chance, self.on_lock)
        return self.kernel

    # ---- the kernel's side --------------------------------------------------------------------------------------------------

    def on_lock(self, place: Place, name: str, lock: str) -> None:
        if name == "token.lock":
            self._token(place, lock)
        elif name == "want.lock":
            self._want(place, lock)
        elif TICKET.match(name):
            if lock == "exclusive":
                self.standing[place] = place.ticket
            elif not place.ticket:
                self.standing.pop(place, None)

    def _token(self, place: Place, lock: str) -> None:
        if not lock:
            if self.holder is place:
                self._check_stay(place)
                self.holder = None
            return
        if self.holder is not None:
            raise Violation(f"{place} takes the token from {self.holder}")
        if place not in self.standing:
            raise Violation(f"{place} takes the token without a ticket")
        ahead = [other for other, number in self.standing.items() if number < self.standing[place]]
        if ahead:
            raise Violation(f"{place} overtakes {ahead[0]}")
        self.holder, self._stay = place, Stay(rings_lost_before=self.kernel.rings_lost)
        self.handoffs += self._last is not place
        self._last = place

    def _want(self, place: Place, lock: str) -> None:
        if lock == "shared":
            self.wanting.setdefault(place, trio.current_time())
        elif lock == "" and not any(held == "want.lock shared" for held in self.kernel.locks(place)):
            self.wanting.pop(place, None)
        if self.holder is not None:
            self._watch_stay(self.holder)

    def holds_token(self, place: Place, what: str) -> None:
        if self.holder is not place:
            raise Violation(f"{place} {what} while {self.holder or 'nobody'} holds the token")

    def may_stay(self, place: Place, what: str) -> None:
        """Under a budget the ledger gives that right."""
        if not self.budgeted:
            self.holds_token(place, what)

    # ---- the owners' side ---------------------------------------------------------------------------------------------------

    def add(self, place: Place, owner: Owner) -> None:
        self._owners[place] = owner

    def forget(self, process: Process) -> None:
        self._owners = {place: owner for place, owner in self._owners.items() if place.process is not process}

    def check_stopped(self, process: Process) -> None:
        """After a stop that was asked for: everything has been given back."""
        for place, owner in self._owners.items():
            if place.process is process:
                states = owner.state("token"), owner.state("load")
                if states != ("asleep", "unloaded") or owner.demand.answers:
                    raise Violation(f"{place} has stopped as {states} with {len(owner.demand.answers)} requests")
                if self.kernel.locks(place):
                    raise Violation(f"{place} has stopped and keeps {self.kernel.locks(place)}")

    def look(self, process: Process) -> None:
        """After each event of an owner of this process."""
        for place, owner in self._owners.items():
            if place.process is process and not process.dead:
                self._check_owner(place, owner)
        if self.holder is not None:
            self._watch_stay(self.holder)
            self._check_stay(self.holder)

    def _check_owner(self, place: Place, owner: Owner) -> None:
        token, residency = owner.state("token"), owner.state("residency")
        if residency in (MOVING_IN if self.budgeted else ON_THE_DEVICE) and self.holder is not place:
            raise Violation(f"{place} is {residency} while {self.holder or 'nobody'} holds the token")
        if token in (MOVES if self.budgeted else TOKEN_HELD) and self.holder is not place:
            raise Violation(f"{place} is {token} while {self.holder or 'nobody'} holds the token")
        if token == "asleep" and (kept := self.kernel.locks(place)):
            raise Violation(f"{place} is asleep and keeps {', '.join(kept)}")
        if token != "retrying":
            self._retrying.discard(place)
        elif place not in self._retrying:
            self._retrying.add(place)
            if not owner.demand.count:
                raise Violation(f"{place} is going to try again, and nobody needs it")
        if token == "waiting" and place not in self.wanting:
            raise Violation(f"{place} waits and cannot be seen")
        loads = owner.state("load") in LOADS_WAIT
        if owner.demand.count != len(owner.demand.answers) + len(owner.demand.wakers) + loads:
            who = f"{len(owner.demand.answers)} requests, {len(owner.demand.wakers)} wakes, {loads:d} loads"
            raise Violation(f"{place} counts {owner.demand.count} who need it, but there are {who}")

    # ---- how long a holder stays --------------------------------------------------------------------------------------------

    def _watch_stay(self, place: Place) -> None:
        stay, now, owner = self._stay, trio.current_time(), self._owners.get(place)
        if owner is not None and stay.mapped_at is None and owner.state("token") == "awake":
            stay.mapped_at = now
        others = [other for other in self.wanting if other is not place and not other.process.dead]
        if not others or place.process.dead:
            stay.contended_since = None
        elif stay.contended_since is None:
            stay.contended_since = now
        needed = owner is not None and (owner.demand.count if stay.mapped_at is None else owner.demand.answers)
        if needed or place.process.dead:
            stay.needed_until = None
        elif stay.needed_until is None:
            stay.needed_until = now

    def _check_stay(self, place: Place) -> None:
        stay, now = self._stay, trio.current_time()
        if stay.contended_since is None or self.budgeted:  # then nobody stays with the token, and who waits for room waits for others
            return
        slack = self.leave_s + LATE_S + (SLOW_CHECK_S if self.kernel.rings_lost != stay.rings_lost_before else 0)
        if stay.mapped_at is None:
            since, slack = stay.contended_since, slack + BEFORE_MAPPED_S
        else:
            since = max(stay.mapped_at + self.min_hold_s, stay.contended_since)
            self.longest_stay_s = max(self.longest_stay_s, now - since)
            if self.quantum_s and now - since > self.quantum_s + slack:
                raise Violation(f"{place} stays {now - since:.2f} s while somebody waits; the quantum is {self.quantum_s} s")
        if stay.needed_until is not None and (unneeded := now - max(since, stay.needed_until)) > slack:
            raise Violation(f"{place} stays {unneeded:.2f} s while somebody waits, and nobody needs it")


class WatchedChanges(Changes):
    """Of one process.  The judge looks after each event, and who waits for one dies with the process, also behind a shield."""

    def __init__(self, judge: Judge, process: Process) -> None:
        super().__init__()
        self._judge, self._process = judge, process
        process.on_death = super().happened

    def happened(self) -> None:
        self._judge.look(self._process)
        super().happened()

    async def after(self, version: int) -> int:
        newer = await super().after(version)
        self._process.touch()
        return newer
