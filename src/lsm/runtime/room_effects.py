"""Room on the device under a budget: what a model may take, whom it asks to leave, and what it has been asked itself.

The effects of TOKEN and RESIDENCY that have to do with the ledger, performed on an `arena.Ledger`.  Without a budget nothing is written
there, and a model that shares with nobody asks everybody who has written something to leave.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lsm.arena.ledger import Entry, Ledger
from lsm.arena.line import Line
from lsm.arena.victims import Ask, Candidate, everybody, victims
from lsm.errors import ArenaError, DeviceMemoryError, OverBudget
from lsm.runtime.inbox import Event, Inbox, Reminders
from lsm.runtime.line_effects import PAUSE_MAX_S, SLOW_CHECK_S, LineFailed, attempt

log = logging.getLogger(__name__)

ROOM_CHECK_S = 0.25  # while others are asked: each look rings again, and finds who has died
STUCK_GRACE_S = 1.0  # for a KV cache that could not leave to find room after all: it tries at each look
DEAD_GRACE_S = 1.0  # for the memory of a dead process to come back, where the device does not say what is free
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

Sizes = Mapping[str, int]  # bytes by class of memory


@dataclass(frozen=True, slots=True)
class Budget:
    """How much of the device all models of the arena may have together.  size_bytes: None: they share nothing, one has the device.

    free_bytes: what the device says is free just now; None if it does not say.  clock_s: one clock for all processes.
    """

    size_bytes: int | None = None
    free_bytes: Callable[[], int | None] = lambda: None
    clock_s: Callable[[], float] = time.monotonic


class RoomEffects:
    """`needs()`: bytes that the model has when it is awake; None: not known, and a `look` comes when it is."""

    def __init__(
        self, ledger: Ledger, line: Line, inbox: Inbox, reminders: Reminders, budget: Budget, needs: Callable[[], Sizes | None]
    ) -> None:
        self._ledger, self._line, self._inbox, self._reminders = ledger, line, inbox, reminders
        self._budget = budget
        self._needs = needs
        self._dead_since_s: dict[str, float] = {}  # by name of the page
        self._stuck_since_s: dict[str, float] = {}  # by name of the page that was asked, and could not give what stays
        self._given_up: set[str] = set()  # those that have been so for long
        self._looks = False
        self._booked: Sizes = {}  # room that was found, before the memory is there
        self.asks: tuple[str, ...] = ()  # labels of those who are asked to leave, for people
        self.missing_bytes = 0  # while they are

    # ---- facts ----------------------------------------------------------------------------------------------------------

    def alone(self) -> bool:
        if self.budgeted():
            return False
        try:
            return not any(entry.page.bytes for entry in self._ledger.others())
        except (ArenaError, OSError):
            return False  # the look that follows says what is wrong

    def budgeted(self) -> bool:
        return self._budget.size_bytes is not None

    def asked(self) -> Ask:
        return self._ledger.asked()

    def owed(self) -> bool:
        return self._ledger.page.bytes > 0 and self.asked() is Ask.ALL

    # ---- effects --------------------------------------------------------------------------------------------------------

    def room_look(self) -> None:
        self._keep_looking()
        needs = self._needs() if self.budgeted() else {}
        if needs is None:
            return
        try:
            self._look(needs)
        except ArenaError as error:
            raise LineFailed(error) from error

    def asks_drop(self) -> None:
        self._ledger.withdraw(*self._ledger.asks())
        self._tell((), 0)

    def discharge(self, has: Sizes) -> None:
        """`has`: bytes on the device now, by class.  What we meant to take, we take no longer."""
        self._booked = {}
        self.recount(has)

    def recount(self, has: Sizes, stuck: bool = False) -> None:
        """Of each class what is there, or what room was found for."""
        if not self.budgeted():
            return
        had = self._ledger.page.bytes
        sizes = {name: max(has.get(name, 0), self._booked.get(name, 0)) for name in {**self._booked, **has}}
        self._write(sizes=sizes, stays=sum(sizes.values()), stuck=stuck)
        if sizes_left := self._ledger.page.bytes:  # the bell is a hint
            self._reminders.every("ledger check", SLOW_CHECK_S, "residency", "look")
        else:
            self._reminders.stop("ledger check")
        if sizes_left < had:
            self._line.bell_ring()

    def evicted(self, has: Sizes) -> None:
        """As `recount`, after all was to leave: what is there now could not."""
        self.recount(has, stuck=self.asked() is Ask.ALL and any(has.values()))

    def hold_start(self, min_hold_s: float) -> None:
        self._booked = {}
        self._reminders.stop("ledger check")  # TOKEN has its own while awake
        now_s = self._budget.clock_s()
        self._write(used_s=now_s, held_until_s=now_s + min_hold_s, stuck=False)

    def note(self, busy: bool) -> None:
        """Whether requests are under way, for whoever looks for the model that is missed least."""
        if busy != self._ledger.page.busy:
            self._write(busy=busy, used_s=self._budget.clock_s())

    def loaded(self, has: Sizes) -> None:
        """What a load has really taken, as soon as that is known; the token is held."""
        if self.budgeted() and dict(has) != self._ledger.page.sizes:
            takes, foreseen = size_text(sum(has.values())), size_text(self._ledger.page.bytes)
            log.warning("%s: takes %s of device memory; %s was foreseen", self._ledger.label, takes, foreseen)
            self._write(sizes=dict(has))

    def state_left(self) -> None:
        self._looks, self._stuck_since_s, self._given_up = False, {}, set()
        for name in ("room bell", "room check"):
            self._reminders.stop(name)

    # ---- a class of memory that comes and goes while the model stays ----------------------------------------------------------

    def grow(self, memory_class: str, size_bytes: int) -> bool:
        """Charge it if there is room this instant, without asking anybody to leave.  False: there is none, or somebody is moving memory."""
        if not self.budgeted():
            return True
        try:
            if self._line.has_token:
                return self._grow(memory_class, size_bytes)
            with self._line.token_borrowed() as has_token:
                return has_token and self._grow(memory_class, size_bytes)
        except (LineFailed, ArenaError):
            return False

    def shrink(self, memory_class: str) -> None:
        """What `grow` has charged has left."""
        if memory_class in self._ledger.page.sizes:
            self.recount({name: size for name, size in self._ledger.page.sizes.items() if name != memory_class})

    # ---- helpers --------------------------------------------------------------------------------------------------------

    def _look(self, needs: Sizes) -> None:
        needs_bytes, budget = sum(needs.values()), self._budget.size_bytes
        if budget is not None and needs_bytes > budget:
            raise LineFailed(OverBudget(_too_large(needs, budget)))
        if self.budgeted():
            attempt(self._line, self._open_page)
        entries = self._counted(needs_bytes)
        missing = sum(entry.page.bytes for entry in entries) + needs_bytes - (budget or 0)
        if missing <= 0:
            self._booked = needs
            attempt(self._line, lambda: self._ledger.write(sizes=dict(needs), stays=needs.get("kv", 0), asks=(), needs=0))
            self._inbox.answer(Event("token", "room"))
            return
        of_the_dead = sum(entry.page.bytes for entry in entries if not entry.alive)  # it comes back by itself, soon
        self._ask(missing - of_the_dead, [entry for entry in entries if entry.alive and entry.page.bytes])

    def _counted(self, needs_bytes: int) -> list[Entry]:
        """The pages whose bytes count.  Those of the dead count until their memory has been seen to be free, or had time to come back."""
        entries = attempt(self._line, self._ledger.others)
        now_s, free = self._budget.clock_s(), self._budget.free_bytes()
        dead = [entry for entry in entries if not entry.alive]
        self._dead_since_s = {entry.name: self._dead_since_s.get(entry.name, now_s) for entry in dead}
        is_free = free is not None and free >= needs_bytes - self._ledger.page.bytes
        for entry in dead:
            if not entry.page.bytes or is_free or now_s - self._dead_since_s[entry.name] >= DEAD_GRACE_S:
                self._ledger.sweep(entry.name)
                entries.remove(entry)
        return entries

    def _ask(self, missing: int, entries: Sequence[Entry]) -> None:
        self._give_up(entries)
        candidates = [self._candidate(entry) for entry in entries]
        if self._given_up and sum(candidate.all_bytes for candidate in candidates) < missing:
            raise LineFailed(DeviceMemoryError(_stuck([entry.label for entry in entries if entry.name in self._given_up])))
        chosen = victims(missing, candidates) if self.budgeted() else everybody(candidates)
        if chosen is None:  # some are protected, and not for long
            chosen = self._ledger.asks()
            now_s = self._budget.clock_s()
            rested_s = min((entry.page.held_until_s for entry in entries if entry.page.held_until_s > now_s), default=now_s + ROOM_CHECK_S)
            self._reminders.after("pause", rested_s - now_s, "token", "look")
        self._ledger.withdraw(*(name for name in self._ledger.asks() if name not in chosen))
        if not all([self._ledger.ask(name, ask) for name, ask in chosen.items()]):
            self._reminders.after("pause", PAUSE_MAX_S / 10, "token", "look")
        self._tell([entry for entry in entries if entry.name in chosen], missing)

    def _give_up(self, entries: Sequence[Entry]) -> None:
        """What could not leave for long is asked for no more: who keeps the token for it keeps it from everybody."""
        now_s, asks = self._budget.clock_s(), self._ledger.asks()
        stuck = [entry.name for entry in entries if entry.page.stuck and asks.get(entry.name) is Ask.ALL]
        self._stuck_since_s = {name: self._stuck_since_s.get(name, now_s) for name in stuck}
        self._given_up.update(name for name, since_s in self._stuck_since_s.items() if now_s - since_s >= STUCK_GRACE_S)

    def _candidate(self, entry: Entry) -> Candidate:
        page = entry.page
        some_bytes = page.bytes - page.stays
        return Candidate(
            entry.name, some_bytes, some_bytes if entry.name in self._given_up else page.bytes, page.busy, page.used_s,
            page.held_until_s > self._budget.clock_s(), self._ledger.asks().get(entry.name, Ask.NOTHING),
        )  # fmt: skip

    def _grow(self, memory_class: str, size_bytes: int) -> bool:
        attempt(self._line, self._open_page)
        sizes = {**self._ledger.page.sizes, memory_class: size_bytes}
        needs_bytes = sum(sizes.values())
        missing = sum(entry.page.bytes for entry in self._counted(needs_bytes)) + needs_bytes - (self._budget.size_bytes or 0)
        if missing <= 0:
            self._write(sizes=sizes)
        return missing <= 0

    def _open_page(self) -> None:
        if not self._ledger.number:
            self._ledger.open_page()
            self._reminders.each_ring("ledger bell", self._ledger.bell_fd, self._hear, "token", "look")

    def _hear(self) -> None:
        self._ledger.bell_hear()
        self._inbox.post(Event("residency", "look"))

    def _keep_looking(self) -> None:
        """Until the state is left: whoever leaves rings the holder's bell, whoever dies does not."""
        if not self._looks:
            self._looks = True
            self._reminders.each_ring("room bell", self._line.bell_fd, self._line.bell_hear, "token", "look")
            self._reminders.every("room check", ROOM_CHECK_S, "token", "look")

    def _tell(self, asked: Sequence[Entry], missing: int) -> None:
        self.asks, self.missing_bytes = tuple(entry.label for entry in asked), missing
        self._write(asks=tuple(entry.number for entry in asked), needs=missing)

    def _write(self, **changes: Any) -> None:
        """Where nothing waits for it.  Both slots are on the disk since birth, so it does not fail; should it, the page says too much."""
        try:
            self._ledger.write(**changes)
        except OSError as error:
            log.warning("%s: cannot write into the ledger: %s", self._ledger.label, error.strerror)


def size_text(size_bytes: int) -> str:
    """For people: `3.1 GiB`."""
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size_bytes} B"


def _stuck(labels: Sequence[str]) -> str:
    return (
        f"the KV cache of {', '.join(labels)} is in the way and cannot leave, since there is no room for its copy: "
        "make some on the disk of LSM_SPILL_DIR; the log of its server says more"
    )


def _too_large(needs: Sizes, budget: int) -> str:
    parts = ", ".join(f"{name} {size_text(size)}" for name, size in needs.items() if size)
    return (
        f"needs {size_text(sum(needs.values()))} of device memory ({parts}), and the budget is {size_text(budget)}; "
        "raise --vram-budget, or choose a smaller --ctx-size or model"
    )
