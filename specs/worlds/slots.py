"""The scheduler: requests wait for slots, slots share batches; a client may come or go between any two batches.

One step here is one step there: give slots to those who wait, fill a batch, decode it.  A job with two choices is two requests, of which
the second waits for the first one's prompt; after that their slots share cells, which a shift would move under both.
What the decode does is free: it may work, find no room from some row on, or fail from some row on; each answer may end with any token.
Which idle slot is taken, and how much of its cache fits, is free too, so the choice by prefix and by time of use is one of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from lsm.machines import MACHINES
from lsm.machines.request import ENDED, LIVE
from lsm.machines.table import Machine, Refused, step
from specs.worlds.slots_state import (
    FILL,
    LEAD,
    NEVER,
    NOBODY,
    OTHER,
    PINNED,
    TOKENS,
    UNKNOWN,
    Engine,
    Request,
    Scenario,
    Slot,
)

Step = tuple[str, Engine]
Share = tuple[int, int]  # slot, rows
PROMPTS = ("started", "processing_prompt", "done_prompt")
TABLES = {name: MACHINES[name] for name in ("request", "slot")}


def initial(scenario: Scenario) -> Engine:
    requests = [Request(of=r - 1 if kind == OTHER else NOBODY) for r, kind in enumerate(scenario.kinds)]
    return Engine((Slot(),) * scenario.slots, tuple(requests))


class World:
    """The steps of the scheduler and of its clients, for some tables (mutants, perhaps) and some scenario."""

    def __init__(self, scenario: Scenario, tables: dict[str, Machine] | None = None) -> None:
        self.scenario = scenario
        self.tables = TABLES | (tables or {})
        self.step = step  # the coverage listens here
        self._taken: dict[tuple[object, ...], tuple[str, tuple[str, ...], str]] = {}

    def successors(self, engine: Engine) -> list[Step]:
        if engine.wrong:
            return [("wrong", engine)]
        return [*self._clients(engine), *self._memory(engine), *self._steps(engine)]

    # ---- clients and memory -----------------------------------------------------------------------------------------

    def _clients(self, engine: Engine) -> Iterator[Step]:
        for r, request in enumerate(engine.requests):
            if request.of != NOBODY:
                continue  # does everything with the first choice of its job
            if all(engine.requests[i].state not in LIVE for i in self._job(r)) and r not in engine.late:
                came = engine
                for i in self._job(r):
                    came = _with_request(came, i, Request("queued", of=engine.requests[i].of))
                if self.scenario.mistake == "queued in two steps":
                    yield f"come.{r}", came._replace(late=(*engine.late, r))
                else:
                    queued = came._replace(queue=(*engine.queue, r))
                    yield f"come.{r}", queued
                    if self.scenario.faults:
                        yield f"fault.come.{r}", self.advance(queued, r, "fail")
            if request.state != NEVER:
                yield f"cancel.{r}", self._cancelled(engine, r)
            if r in engine.late:
                yield f"queue.{r}", engine._replace(queue=(*engine.queue, r), late=_without(engine.late, r))
        if self.scenario.faults:
            everything = engine
            for r, request in enumerate(engine.requests):
                if request.state in LIVE:
                    everything = self.advance(everything, r, "fail")
            yield "fault.all", everything

    def _job(self, r: int) -> tuple[int, ...]:
        """All choices of the job that this request is the first choice of."""
        return (r, r + 1) if self.scenario.kinds[r] == LEAD else (r,)

    def _cancelled(self, engine: Engine, r: int) -> Engine:
        after = engine
        for i in self._job(r):
            after = self.advance(after, i, "cancel")
            if after.requests[i].state not in ENDED:
                after = after._replace(wrong=f"request {i} was cancelled and goes on")
        return after._replace(queue=engine.queue) if self.scenario.mistake == "cancelled ones stay in the queue" else after

    def _memory(self, engine: Engine) -> Iterator[Step]:
        """Where all slots share their cells, an idle one is cleared to make room."""
        for s, slot in enumerate(engine.slots):
            if slot.request == NOBODY and slot.believed:
                yield f"room.{s}", _cleared(engine, s)

    # ---- one step of the scheduler ----------------------------------------------------------------------------------

    def _steps(self, engine: Engine) -> Iterator[Step]:
        if not (engine.queue or engine.order):
            return
        for assigned in self._assign(engine, engine.queue):
            shares = self._shares(assigned)
            for share in shares:
                assigned = self._announce(assigned, share)
            rows = [s for s, n in shares for _ in range(n)]
            for after in self._decoded(assigned, rows):
                yield "step", after
            if self.scenario.faults:
                for n in range(len(rows)):
                    yield from self._failing(assigned, rows, n)

    def _assign(self, engine: Engine, queue: tuple[int, ...]) -> Iterator[Engine]:
        """Every way to give slots to those who wait, in their order; who waits for one slot lets others pass."""
        if self.scenario.mistake == "newest first":
            queue = tuple(reversed(queue))
        if not queue:
            yield engine
            return
        r, rest = queue[0], queue[1:]
        idle = [s for s, slot in enumerate(engine.slots) if slot.request == NOBODY or self.scenario.mistake == "busy slots are given"]
        if self.scenario.kinds[r] == PINNED:
            idle = [s for s in idle if s == 0]
        if self.scenario.mistake == "equal times of use select no slot" and len(idle) > 1:
            idle = []
        needs = len(self._job(r))
        if not idle or (len(idle) < needs and self.scenario.mistake == "others pass who needs several slots"):
            yield from self._assign(engine, rest)
        elif len(idle) < needs:
            yield engine  # nobody passes
        else:
            for s in idle:
                for started in self._started(engine, r, s):
                    if needs > 1:  # the other choice; its slot keeps what it has until the prompt is there
                        started = self._occupied(started, r + 1, next(i for i in idle if i != s))
                    yield from self._assign(started, rest)

    def _started(self, engine: Engine, r: int, s: int) -> Iterator[Engine]:
        """Any part of the cache may fit the prompt, but for its last row: that has to be decoded, to give logits."""
        engine = self._occupied(engine._replace(queue=_without(engine.queue, r)), r, s)
        slot = engine.slots[s]
        whole = self.scenario.mistake == "the whole prompt is taken from the cache"
        for kept in range(min(slot.believed, self.scenario.prompt - (not whole)) + 1):
            if kept:
                cached = UNKNOWN if slot.cached == UNKNOWN else kept
                yield _with_slot(engine, s, slot._replace(believed=kept, cached=cached))
            else:
                yield _cleared(engine, s)

    def _occupied(self, engine: Engine, r: int, s: int) -> Engine:
        engine = _with_request(engine, r, engine.requests[r]._replace(slot=s))
        engine = _with_slot(engine, s, engine.slots[s]._replace(request=r))
        engine = self.advance(engine._replace(order=(*engine.order, s)), r, "start")
        return self._fire_slot(engine, s, "assign", lead=engine.requests[r].of == NOBODY)

    def _shares(self, engine: Engine) -> list[Share]:
        """A row for each token, then as much of the prompts as fits."""
        tokens = [(s, 1) for s in engine.order if engine.requests[engine.slots[s].request].tokens]
        prompts = [(s, self._left(engine, s)) for s in engine.order if engine.slots[s].state in PROMPTS]
        room, shares = engine.rows, []
        for s, n in prompts + tokens if self.scenario.mistake == "prompts go before tokens" else tokens + prompts:
            if min(n, room) > 0:
                shares.append((s, min(n, room)))
                room -= min(n, room)
        return shares

    def _left(self, engine: Engine, s: int) -> int:
        """Rows of the prompt that are still to be decoded."""
        return self.scenario.prompt - engine.slots[s].believed

    def _announce(self, engine: Engine, share: Share) -> Engine:
        s, n = share
        if engine.slots[s].state in ("started", "processing_prompt"):
            return self._fire_slot(engine, s, "batch", whole=n == self._left(engine, s))
        return engine

    def _decoded(self, engine: Engine, rows: list[int]) -> Iterator[Engine]:
        """Every way in which these rows, one after the other, are decoded and sampled."""
        if not rows:
            yield engine
            return
        for after in self._row(engine, rows[0]):
            yield from self._decoded(after, rows[1:])

    def _row(self, engine: Engine, s: int) -> Iterator[Engine]:
        slot = engine.slots[s]
        r, request = slot.request, engine.requests[slot.request]
        cached = UNKNOWN if slot.cached == UNKNOWN else slot.cached + 1
        engine = _with_slot(engine, s, slot._replace(believed=slot.believed + 1, cached=cached))
        if not request.tokens and slot.believed + 1 < self.scenario.prompt:
            yield engine  # no logits yet
        elif self.scenario.kinds[r] == FILL:
            yield self.advance(engine, r, "finish")
        elif not request.tokens and len(self._job(r)) > 1:
            engine = self._fire_slot(engine, engine.requests[r + 1].slot, "share")
            for after in self._token(engine, r):
                yield from self._token(after, r + 1)
        else:
            yield from self._token(engine, r)

    def _token(self, engine: Engine, r: int) -> Iterator[Engine]:
        """The request takes a token, which may be its last.  Else a slot that is full by now shifts, or ends the answer."""
        request = engine.requests[r]
        s = request.slot
        if not request.tokens:
            if engine.slots[s].believed < self.scenario.prompt:
                engine = engine._replace(wrong=f"request {r} answers a prompt that is not in its slot")
            engine = self.advance(self._fire_slot(engine, s, "sampled"), r, "first_token")
        engine = _with_request(engine, r, engine.requests[r]._replace(tokens=request.tokens + 1))
        yield self.advance(engine, r, "finish")
        if request.tokens + 1 < TOKENS:
            full = engine.slots[s].believed + 1 >= self.scenario.context
            yield self._fire_slot(engine, s, "full", shifts=self._may_shift(engine, s)) if full else engine

    def _may_shift(self, engine: Engine, s: int) -> bool:
        """Cells that a busy slot shares must stay where they are."""
        alone = not engine.slots[s].shared or engine.slots[1 - s].request == NOBODY
        return self.scenario.shifts and (alone or self.scenario.mistake == "a shift moves the cells of a busy slot")

    def _shifted(self, engine: Engine, s: int) -> Engine:
        """The first row leaves."""
        if engine.slots[s].shared:
            other = engine.slots[1 - s]
            if other.request == NOBODY and self.scenario.mistake != "who shared the cells still believes in them":
                engine = _cleared(engine, 1 - s)
            else:
                engine = _with_slot(engine, 1 - s, other._replace(cached=UNKNOWN))
        slot = engine.slots[s]
        return _with_slot(engine, s, slot._replace(believed=slot.believed - 1, cached=slot.cached - 1))

    def _failing(self, engine: Engine, rows: list[int], n: int) -> Iterator[Step]:
        """The first `n` rows are decoded.  The next finds no room and ends its request; or the decode fails, and ends all in the batch."""
        for after in self._decoded(engine, rows[:n]):
            failed = self._fail_slot(after, rows[n])
            yield "fault.room", failed._replace(rows=1) if self.scenario.mistake == "a halved batch stays so" else failed
            spoiled = after
            for s in set(rows[n:]):
                spoiled = _with_slot(spoiled, s, spoiled.slots[s]._replace(cached=UNKNOWN))
            failing = rows[n : n + 1] if self.scenario.mistake == "a failed batch ends one request" else rows
            for s in dict.fromkeys(failing):
                spoiled = self._fail_slot(spoiled, s)
            yield "fault.decode", spoiled

    def _fail_slot(self, engine: Engine, s: int) -> Engine:
        r = engine.slots[s].request
        return engine if r == NOBODY else self.advance(engine, r, "fail")

    # ---- the tables -------------------------------------------------------------------------------------------------

    def advance(self, engine: Engine, r: int, event: str) -> Engine:
        """One event for a request, and its effects, some of which move its slot."""
        state, effects, wrong = self._take("request", engine.requests[r].state, event)
        if wrong:
            return engine._replace(wrong=wrong)
        engine = _with_request(engine, r, engine.requests[r]._replace(state=state))
        for effect in effects:
            if effect.startswith("slot_"):
                engine = self._free(engine, engine.requests[r].slot, effect.removeprefix("slot_"))
            elif effect == "others_fail":
                for i in self._job(r if engine.requests[r].of == NOBODY else engine.requests[r].of):
                    engine = engine if i == r else self.advance(engine, i, "fail")
            else:
                request = engine.requests[r]
                engine = _with_request(engine, r, request._replace(told=request.told + 1, slot=NOBODY))
                engine = engine._replace(queue=_without(engine.queue, r))
        return engine

    def _free(self, engine: Engine, s: int, event: str) -> Engine:
        engine = self._fire_slot(engine, s, event)
        return _with_slot(engine, s, engine.slots[s]._replace(request=NOBODY))._replace(order=_without(engine.order, s))

    def _fire_slot(self, engine: Engine, s: int, event: str, **facts: bool) -> Engine:
        state, effects, wrong = self._take("slot", engine.slots[s].state, event, **facts)
        if wrong:
            return engine._replace(wrong=wrong)
        engine = _with_slot(engine, s, engine.slots[s]._replace(state=state))
        for effect in effects:
            if effect == "cache_clear":
                engine = _cleared(engine, s)
            elif effect == "prompt_copy":
                lead = engine.slots[engine.requests[engine.requests[engine.slots[s].request].of].slot]
                copy = engine.slots[s]._replace(believed=lead.believed, cached=lead.cached)
                engine = _with_slot(engine, s, copy)
                engine = engine._replace(slots=tuple(slot._replace(shared=True) for slot in engine.slots))
            elif effect == "context_shift":
                engine = self._shifted(engine, s)
            elif effect == "request_limit":
                engine = self.advance(engine, engine.slots[s].request, "finish")
        return engine

    def _take(self, name: str, state: str, event: str, **facts: bool) -> tuple[str, tuple[str, ...], str]:
        """What the table says, asked once for each question: target, effects, and "" or how it is refused."""
        question = (name, state, event, *facts.values())
        if question not in self._taken:
            try:
                self._taken[question] = (*self.step(self.tables[name], state, event, facts), "")
            except Refused as refused:
                self._taken[question] = (state, (), str(refused))
        return self._taken[question]


def _with_slot(engine: Engine, s: int, slot: Slot) -> Engine:
    return engine._replace(slots=(*engine.slots[:s], slot, *engine.slots[s + 1 :]))


def _with_request(engine: Engine, r: int, request: Request) -> Engine:
    return engine._replace(requests=(*engine.requests[:r], request, *engine.requests[r + 1 :]))


def _cleared(engine: Engine, s: int) -> Engine:
    """The slot is empty, so no other one shares anything with it.  (There are two.)"""
    slots = tuple(slot._replace(shared=False) for slot in engine.slots)
    return _with_slot(engine._replace(slots=slots), s, slots[s]._replace(believed=0, cached=0))


def _without(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(other for other in numbers if other != number)
