"""The scheduler: requests wait for slots, slots share batches; a client may come or go between any two batches.

One step here is one step there: give slots to those who wait, fill a batch, decode it.  What the decode does is free: it may work, find
no room from some row on, or fail from some row on; each answer may end with any token.  Which idle slot is taken, and how much of its
cache fits, is free too, so the choice by prefix and by time of use is one of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from lsm.machines import MACHINES
from lsm.machines.request import ENDED, LIVE
from lsm.machines.table import Machine, Refused, step
from specs.worlds.slots_state import FILL, NEVER, NOBODY, PINNED, ROWS, TOKENS, UNKNOWN, Engine, Request, Scenario, Slot

Step = tuple[str, Engine]
Share = tuple[int, int]  # slot, rows
PROMPTS = ("started", "processing_prompt", "done_prompt")
TABLES = {name: MACHINES[name] for name in ("request", "slot")}


def initial(scenario: Scenario) -> Engine:
    return Engine((Slot(),) * scenario.slots, (Request(),) * len(scenario.kinds))


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
        steps = [*self._clients(engine), *self._memory(engine), *self._steps(engine)]
        return [(label, target) for label, target in steps if target != engine]

    # ---- clients and memory -----------------------------------------------------------------------------------------

    def _clients(self, engine: Engine) -> Iterator[Step]:
        for r, request in enumerate(engine.requests):
            if request.state not in LIVE and r not in engine.late:
                came = _with_request(engine, r, Request("queued"))
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

    def _cancelled(self, engine: Engine, r: int) -> Engine:
        after = self.advance(engine, r, "cancel")
        if self.scenario.mistake == "cancelled ones stay in the queue":
            after = after._replace(queue=engine.queue)
        return after if after.requests[r].state in ENDED else after._replace(wrong=f"request {r} was cancelled and goes on")

    def _memory(self, engine: Engine) -> Iterator[Step]:
        """Where all slots share their cells, an idle one is cleared to make room."""
        for s, slot in enumerate(engine.slots):
            if slot.request == NOBODY and slot.believed:
                yield f"room.{s}", _with_slot(engine, s, slot._replace(believed=0, cached=0))

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
        if not idle:
            yield from self._assign(engine, rest)
        for s in idle:
            for started in self._started(engine, r, s):
                yield from self._assign(started, rest)

    def _started(self, engine: Engine, r: int, s: int) -> Iterator[Engine]:
        """Any part of the cache may fit the prompt, but for its last row: that has to be decoded, to give logits."""
        slot = engine.slots[s]
        engine = _with_request(engine, r, engine.requests[r]._replace(slot=s))
        engine = _with_slot(engine, s, slot._replace(request=r))
        engine = engine._replace(queue=_without(engine.queue, r), order=(*engine.order, s))
        engine = self._fire_slot(self.advance(engine, r, "start"), s, "assign")
        whole = self.scenario.mistake == "the whole prompt is taken from the cache"
        for kept in range(min(slot.believed, self.scenario.prompt - (not whole)) + 1):
            cached = UNKNOWN if slot.cached == UNKNOWN else kept
            yield _with_slot(engine, s, engine.slots[s]._replace(believed=kept, cached=cached))

    def _shares(self, engine: Engine) -> list[Share]:
        """A row for each token, then as much of the prompts as fits."""
        tokens = [(s, 1) for s in engine.order if engine.requests[engine.slots[s].request].tokens]
        prompts = [(s, self._left(engine, s)) for s in engine.order if not engine.requests[engine.slots[s].request].tokens]
        room, shares = ROWS, []
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
        else:
            if not request.tokens:
                engine = self.advance(self._fire_slot(engine, s, "sampled"), r, "first_token")
            engine = _with_request(engine, r, engine.requests[r]._replace(tokens=request.tokens + 1))
            yield self.advance(engine, r, "finish")
            if request.tokens + 1 < TOKENS:
                yield engine

    def _failing(self, engine: Engine, rows: list[int], n: int) -> Iterator[Step]:
        """The first `n` rows are decoded.  The next finds no room and ends its request; or the decode fails, and ends all in the batch."""
        for after in self._decoded(engine, rows[:n]):
            yield "fault.room", self._fail_slot(after, rows[n])
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
        slot = engine.slots[s]._replace(state=state)
        if "cache_clear" in effects:
            slot = slot._replace(believed=0, cached=0)
        return _with_slot(engine, s, slot)

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


def _without(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(other for other in numbers if other != number)
