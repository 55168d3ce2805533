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
from specs.worlds.slots_state import CHOICES, FILL, NOBODY, PINNED, SHIFT, TOKENS, Engine, Request, Scenario, Slot
from tests.engine.scripted import END, Bench

SCENARIOS = {
    "single": Scenario(),
    "family": CHOICES,
    "shift": SHIFT,
}
RUNS, ACTS = 60, 60
ENDS = {Ended: "done", Failed: "failed", Cancelled: "cancelled"}


@cache
def known(name: str) -> frozenset[Engine]:
    """Every state of the world; how many tokens an ended request had is left out."""
    scenario = SCENARIOS[name]
    graph = reach(slots.initial(scenario), slots.World(scenario).successors, 100_000)
    return frozenset(
        engine._replace(requests=tuple(request._replace(tokens=0) if request.told else request for request in engine.requests))
        for engine in graph.states
    )


class Run:
    """A real scheduler, and what the world would call its state."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(seed)
        self.scenario = SCENARIOS[name]
        shifts = self.scenario.shifts
        n_ctx_slot = min(self.scenario.context, 8)
        self.bench = Bench(n_slots=2, n_batch=2, n_ctx_slot=n_ctx_slot, context_shift=shifts, can_shift=shifts)
        self.ended: dict[int, Request] = dict(enumerate(slots.initial(self.scenario).requests))
        self.ids: dict[int, tuple[str, int]] = {}
        self.count = 0

    def state(self) -> Engine:
        scheduler = self.bench.scheduler
        for output in scheduler.outputs():
            if type(output) in ENDS:
                index = output.finish.index if isinstance(output, Ended) else None
                for r in [r for r, (id, i) in self.ids.items() if id == output.id and index in (i, None)]:
                    del self.ids[r]
                    self.ended[r] = self.ended[r]._replace(state=ENDS[type(output)], told=1)
        return Engine(
            tuple(self.slot(s) for s in range(2)),
            tuple(self.request(r) for r in self.ended),
            tuple(self.number(family.id) for family in scheduler.pool.queue),
            tuple(slot.id for slot in scheduler.pool.order),
        )

    def slot(self, s: int) -> Slot:
        slot = self.bench.scheduler.pool.slots[s]
        request = NOBODY if slot.request is None else self.number(slot.request.id, slot.request.index)
        return Slot(slot.machine.state, request, slot.n, len(self.bench.decoder.cached(s)), len(slot.sharers) > 1)

    def request(self, r: int) -> Request:
        if r not in self.ids:
            return self.ended[r]
        id, index = self.ids[r]
        request = self.bench.scheduler.pool.families[id].members[index]
        slot = NOBODY if request.slot_id is None else request.slot_id
        return Request(request.machine.state, slot, request.predicted_n, of=self.ended[r].of)

    def number(self, id: str, index: int = 0) -> int:
        return next(r for r, name in self.ids.items() if name == (id, index))

    def act(self) -> None:
        waiting = [r for r, request in self.ended.items() if request.of == NOBODY and not {r, *self.others(r)} & self.ids.keys()]
        choice = self.random.random()
        if choice < 0.3 and waiting:
            self.submit(self.random.choice(waiting))
        elif choice < 0.4 and self.ids:
            self.bench.scheduler.cancel(self.random.choice(list(self.ids.values()))[0])
        elif choice < 0.43:
            self.bench.scheduler.fail_all(ServerError("everything is failed"))
        elif self.bench.scheduler.has_work:
            self.bench.decoder.codes = self.random.choice([[], [], [], [1], [1, 0, 1], [0], [-3], [1, -3], [1, 0, 2]])
            self.bench.decoder.error = DecodeFailed("the decode failed") if self.random.random() < 0.05 else None
            self.bench.scheduler.step()

    def others(self, r: int) -> tuple[int, ...]:
        return tuple(other for other, request in self.ended.items() if request.of == r)

    def submit(self, r: int) -> None:
        self.count += 1
        id, kind = f"{r}-{self.count}", self.scenario.kinds[r]
        for index, choice in enumerate((r, *self.others(r))):
            self.ids[choice] = id, index
        first = self.random.randrange(3, 6)  # so that prefixes are found now and then
        scripts = [self.random.choice([[END], [3, END], [3, 4]]) for _ in range(2)]
        options: dict[str, object] = {"max_tokens": 0 if kind == FILL else TOKENS, "id_slot": 0 if kind == PINNED else -1}
        prompt, n = [first, 7, 8][: self.scenario.prompt], 1 + len(self.others(r))
        self.bench.submit(id, prompt, script=scripts[0], scripts=scripts[1:], n=n, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_seen"), [("single", 500), ("family", 200), ("shift", 100)])
def test_the_real_scheduler_is_always_in_a_state_of_the_world(name: str, n_seen: int) -> None:
    """P2, P13: what was proved of the world holds for the program as far as it is this one."""
    seen: set[Engine] = set()
    for seed in range(RUNS):
        run = Run(seed, name)
        for _ in range(ACTS):
            run.act()
            state = run.state()
            assert state in known(name), f"seed {seed}: {state}"
            seen.add(state)
        run.bench.scheduler.close()
    assert len(seen) > n_seen, "random runs saw little: they show little"


@pytest.mark.slow
def test_a_state_that_the_world_does_not_have_is_noticed() -> None:
    """Anchors, habit 8: the check is awake."""
    run = Run(0, "single")
    run.submit(0)
    assert run.state() in known("single")
    run.bench.scheduler.pool.queue.clear()
    assert run.state() not in known("single")
    run.bench.scheduler.close()
