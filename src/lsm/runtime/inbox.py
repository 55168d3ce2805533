"""The one way in to an owner: events in order, some of which may still be called off.

A timer or a watched descriptor may fire at the very moment when nobody wants to hear of it any more.  Its event carries a `Call`, and
an event whose call is off is dropped when its turn comes: an old generation never speaks for a new one.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

LIMIT = 4096  # far more than all machines, timers and engine reports of one model can have under way


@dataclass(slots=True, eq=False)
class Call:
    """Something that will report once, unless it is called off first."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    live: bool = True

    def off(self) -> None:
        self.live = False
        self.scope.cancel()


@dataclass(frozen=True, slots=True)
class Event:
    """`event` for `machine`.  `payload` is what came with it; the owner keeps it before the machine moves."""

    machine: str
    event: str
    payload: Any = None
    call: Call | None = None


class Inbox:
    """Bounded: more than `LIMIT` events under way is a mistake in the program, not load."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._ready = trio.Event()

    def post(self, event: Event) -> None:
        assert len(self._events) < LIMIT, f"inbox of {LIMIT} events is full"
        self._events.append(event)
        self._ready.set()

    def answer(self, event: Event) -> None:
        """What a kernel call answered at once comes before everything else: the kernel has moved, so must the machine, whatever was asked
        for meanwhile.  (A cancel between a lock that was won and the news of it would leave the lock with nobody.)"""
        self._events.appendleft(event)
        self._ready.set()

    async def next(self) -> Event:
        """The next event that is still wanted."""
        while True:
            while self._events:
                event = self._events.popleft()
                if event.call is None or event.call.live:
                    return event
            self._ready = trio.Event()
            await self._ready.wait()


class Reminders:
    """Timers and watched descriptors by name.  Starting one calls off the one of the same name."""

    def __init__(self, nursery: trio.Nursery, inbox: Inbox) -> None:
        self._nursery = nursery
        self._inbox = inbox
        self._calls: dict[str, Call] = {}

    def after(self, name: str, seconds: float, machine: str, event: str) -> None:
        async def run(call: Call) -> None:
            await trio.sleep(seconds)
            self._inbox.post(Event(machine, event, call=call))

        self._start(name, run)

    def every(self, name: str, seconds: float, machine: str, event: str) -> None:
        """Again and again, until stopped."""

        async def run(call: Call) -> None:
            while True:
                await trio.sleep(seconds)
                self._inbox.post(Event(machine, event, call=call))

        self._start(name, run)

    def each_ring(self, name: str, fd: int, hear: Callable[[], None], machine: str, event: str) -> None:
        """Each time `fd` is readable, until stopped.  It is emptied by `hear` first: a ring during the look that follows is not lost."""

        async def run(call: Call) -> None:
            while True:
                await trio.lowlevel.wait_readable(fd)
                if not call.live:  # called off in the same instant: the descriptor may be gone
                    return
                hear()
                self._inbox.post(Event(machine, event, call=call))

        self._start(name, run)

    def when_hung_up(self, name: str, fd: int, machine: str, event: str) -> None:
        """Once.  Takes the descriptor over and closes it, whatever happens."""

        async def run(call: Call) -> None:
            await trio.lowlevel.wait_readable(fd)
            self._inbox.post(Event(machine, event, call=call))

        self._start(name, run, lambda: os.close(fd))

    def stop(self, name: str) -> None:
        if (call := self._calls.pop(name, None)) is not None:
            call.off()

    def _start(self, name: str, run: Callable[[Call], Awaitable[None]], close: Callable[[], None] = lambda: None) -> None:
        self.stop(name)
        call = self._calls[name] = Call()

        async def until_off() -> None:
            try:
                with call.scope:
                    if call.live:  # called off before it ran for the first time, it may have been left without its descriptor
                        await run(call)
            finally:
                close()

        self._nursery.start_soon(until_off)
