"""The token machine's effects, performed on an `arena.Line`: one kernel call each, and reminders for what must be waited for.

An effect that a kernel call makes impossible (arena deleted, disk full, no descriptors) raises `LineFailed`; the owner then skips the
rest of the edge and tells the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from lsm.arena.line import Line
from lsm.errors import ArenaError, LsmError
from lsm.runtime.inbox import Event, Inbox, Reminders

PAUSE_MIN_S, PAUSE_MAX_S = 0.0002, 0.02  # between tries where somebody outside the line is in the way
SLOW_CHECK_S = 5.0  # the bell is a hint: level state is looked at now and then

LINE_EFFECTS = (
    "door_try", "ticket_make", "ticket_lock", "door_open", "bell_ring", "look_ahead", "token_try", "token_drop",
    "ticket_unlink", "ticket_close", "want_drop", "hold_start", "quantum_start", "quantum_stop",
)  # fmt: skip

T = TypeVar("T")


class LineFailed(Exception):
    def __init__(self, error: LsmError) -> None:
        super().__init__(str(error))
        self.error = error


def attempt(line: Line, call: Callable[[], T]) -> T:
    """Raises `LineFailed` for what the arena or the system refuses."""
    try:
        return call()
    except ArenaError as error:
        raise LineFailed(error) from error
    except OSError as error:
        raise LineFailed(ArenaError(f"arena {line.arena}: {error.strerror or error}; free some space or descriptors")) from error


class LineEffects:
    def __init__(self, line: Line, inbox: Inbox, reminders: Reminders, min_hold_s: float, quantum_s: float) -> None:
        self._line = line
        self._inbox = inbox
        self._reminders = reminders
        self._min_hold_s = min_hold_s
        self._quantum_s = quantum_s
        self._pause_s = PAUSE_MIN_S
        self._mapped_at = 0.0
        self._quantum_ends: float | None = None

    # ---- facts ----------------------------------------------------------------------------------------------------------

    def wanted(self) -> bool:
        return self._line.wanted()

    def rested(self) -> bool:
        return trio.current_time() >= self._mapped_at + self._min_hold_s

    def quantum_over(self) -> bool:
        return self._quantum_ends is not None and trio.current_time() >= self._quantum_ends

    # ---- effects --------------------------------------------------------------------------------------------------------

    def door_try(self) -> None:
        self._answer(self._try(self._line.door_try), "door_won", "door_busy")

    def ticket_make(self) -> None:
        self._try(self._line.ticket_make)
        self._answer_now("made")

    def ticket_lock(self) -> None:
        self._try(self._line.ticket_lock)

    def door_open(self) -> None:
        self._line.door_open()

    def bell_ring(self) -> None:
        self._line.bell_ring()

    def look_ahead(self) -> None:
        fd = self._try(self._line.ahead)
        if fd < 0:
            self._answer_now("first")
        else:
            self._reminders.when_hung_up("ahead", fd, "token", "ahead_gone")

    def token_try(self) -> None:
        self._answer(self._try(self._line.token_try), "token_won", "token_busy")

    def token_drop(self) -> None:
        for name in ("bell", "slow check", "hold"):
            self._reminders.stop(name)
        self._line.token_drop()

    def ticket_unlink(self) -> None:
        self._line.ticket_unlink()

    def ticket_close(self) -> None:
        self._line.ticket_close()

    def want_drop(self) -> None:
        self._line.want_drop()

    def hold_start(self) -> None:
        self._mapped_at = trio.current_time()
        self.quantum_stop()
        self._reminders.after("hold", self._min_hold_s, "token", "look")
        if self._line.has_token:  # under a budget the ledger has a bell of its own
            self._reminders.each_ring("bell", self._line.bell_fd, self._line.bell_hear, "token", "look")
        self._reminders.every("slow check", SLOW_CHECK_S, "token", "look")

    def quantum_start(self) -> None:
        if self._quantum_ends is None and self._quantum_s > 0:  # 0: never in the middle of a generation
            self._quantum_ends = trio.current_time() + self._quantum_s
            self._reminders.after("quantum", self._quantum_s, "token", "look")

    def quantum_stop(self) -> None:
        self._quantum_ends = None
        self._reminders.stop("quantum")

    def state_left(self) -> None:
        """What was waited for in the state before must not be heard in the new one."""
        for name in ("ahead", "pause", "backoff"):
            self._reminders.stop(name)

    # ---- helpers --------------------------------------------------------------------------------------------------------

    def _try(self, call: Callable[[], T]) -> T:
        return attempt(self._line, call)

    def _answer(self, won: bool, yes: str, no: str) -> None:
        if won:
            self._pause_s = PAUSE_MIN_S
            self._answer_now(yes)
        else:
            self._reminders.after("pause", self._pause_s, "token", no)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _answer_now(self, event: str) -> None:
        self._inbox.answer(Event("token", event))
