"""The world of slots and requests is the scheduler's: whatever the real one does, it is in a state that the explorer has seen.

The scheduler runs on a scripted model with the limits of the world: two slots, prompts of two tokens, answers of two, batches of two rows.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from lsm.engine.outputs import Cancelled, Ended, Failed
from lsm.errors import DecodeFailed, ServerError
from specs.explore import reach
from specs.worlds import slots
from specs.worlds.slots_state import FILL, NOBODY, PINNED, TOKENS, Engine, Request, Scenario, Slot
from tests.engine.scripted import END, Bench

SCENARIO = Scenario()
RUNS, ACTS = 60, 60
ENDS = {Ended: "done", Failed: "failed", Cancelled: "cancelled"}


@cache
def known() -> frozenset[Engine]:
    """Every state of the world; how many tokens an ended request had is left out."""
    graph = reach(slots.initial(SCENARIO), slots.World(SCENARIO).successors, 100_000)
    return frozenset(
        engine._replace(requests=tuple(request._replace(tokens=0) if request.told else request for request in engine.requests))
        for engine in graph.states
    )


class Run:
    """A real scheduler, and what the world would call its state."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = Bench(n_slots=2, n_batch=2, n_ctx_slot=8)
        self.ended: dict[int, Request] = {r: Request() for r in range(len(SCENARIO.kinds))}
        self.ids: dict[int, str] = {}
        self.count = 0

    def state(self) -> Engine:
        scheduler = self.bench.scheduler
        for output in scheduler.outputs():
            if type(output) in ENDS:
                r = next(r for r, name in self.ids.items() if name == output.id)
                del self.ids[r]
                self.ended[r] = Request(ENDS[type(output)], told=1)
        return Engine(
            tuple(self.slot(s) for s in range(2)),
            tuple(self.request(r) for r in range(len(SCENARIO.kinds))),
            tuple(self.number(request.id) for request in scheduler.pool.queue),
            tuple(slot.id for slot in scheduler.pool.order),
        )

    def slot(self, s: int) -> Slot:
        slot = self.bench.scheduler.pool.slots[s]
        request = NOBODY if slot.request is None else self.number(slot.request.id)
        return Slot(slot.machine.state, request, slot.n, len(self.bench.decoder.sequences.get(s, [])))

    def request(self, r: int) -> Request:
        if r not in self.ids:
            return self.ended[r]
        request = self.bench.scheduler.pool.requests[self.ids[r]]
        slot = NOBODY if request.slot_id is None else request.slot_id
        return Request(request.machine.state, slot, request.predicted_n)

    def number(self, id: str) -> int:
        return next(r for r, name in self.ids.items() if name == id)

    def act(self) -> None:
        waiting = [r for r in self.ended if r not in self.ids]
        choice = self.random.random()
        if choice < 0.3 and waiting:
            self.submit(self.random.choice(waiting))
        elif choice < 0.4 and self.ids:
            self.bench.scheduler.cancel(self.random.choice(list(self.ids.values())))
        elif choice < 0.43:
            self.bench.scheduler.fail_all(ServerError("everything is failed"))
        elif self.bench.scheduler.has_work:
            self.bench.decoder.codes = self.random.choice([[], [], [], [1], [1, 0, 1], [0], [-3], [1, -3], [1, 0, 2]])
            self.bench.decoder.error = DecodeFailed("the decode failed") if self.random.random() < 0.05 else None
            self.bench.scheduler.step()

    def submit(self, r: int) -> None:
        self.count += 1
        self.ids[r] = f"{r}-{self.count}"
        kind = SCENARIO.kinds[r]
        first = self.random.randrange(3, 6)  # so that prefixes are found now and then
        script = self.random.choice([[END], [3, END], [3, 4]])
        options: dict[str, object] = {"max_tokens": 0 if kind == FILL else TOKENS, "id_slot": 0 if kind == PINNED else -1}
        self.bench.submit(self.ids[r], [first, 7], script=script, **options)


@pytest.mark.slow
def test_the_real_scheduler_is_always_in_a_state_of_the_world() -> None:
    """P2, P13: what was proved of the world holds for the program as far as it is this one."""
    seen: set[Engine] = set()
    for seed in range(RUNS):
        run = Run(seed)
        for _ in range(ACTS):
            run.act()
            state = run.state()
            assert state in known(), f"seed {seed}: {state}"
            seen.add(state)
        run.bench.scheduler.close()
    assert len(seen) > 500, "random runs saw little: they show little"


@pytest.mark.slow
def test_a_state_that_the_world_does_not_have_is_noticed() -> None:
    """Anchors, habit 8: the check is awake."""
    run = Run(0)
    run.submit(0)
    assert run.state() in known()
    run.bench.scheduler.pool.queue.clear()
    assert run.state() not in known()
    run.bench.scheduler.close()
