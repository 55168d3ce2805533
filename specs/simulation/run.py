"""One seed, one run: a part with faults, then faults stop and progress is required."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import trio
from trio.testing import MockClock

from lsm.runtime import owner
from lsm.verify import Limits, Record, verify
from specs.simulation.busy import BusyInbox
from specs.simulation.chance import Chance
from specs.simulation.clients import Clients
from specs.simulation.device import Device
from specs.simulation.durations import BATCH_MAX_S, RELEASE_MAX_S
from specs.simulation.faults import Faults, random_pause_s
from specs.simulation.judge import Judge, Violation
from specs.simulation.server import Server, Setting

IN_MEMORY = Path("/dev/shm")  # flock and FIFOs are the same there, and no disk is asked
PAUSES_S = (0.5, 1.0, 5.0)  # between the requests of a client: the device is hardly ever idle, or mostly
BUSY = (0.0, 0.05, 0.5)  # how often
SETTLE_S = 900.0  # for everything that was asked for during the faults
WAKE_S = 60.0  # for every model once, with nothing in the way
ONE_S = 20.0  # with nobody else, a slow look included
RUSH_S = 900.0
RUSH_REQUESTS = 5
REST_S = 6.0  # the memory of the dead is back, and everybody has heard everything
STOP_S = 10.0
BUDGET_SEEDS = 10_000  # from this seed on, models share the device under a budget
BUDGETS = (90, 109, 110, 180, 200, 270, 400)  # bytes; one model has 90, of which 20 may stay while it sleeps


@dataclass(frozen=True, slots=True)
class Outcome:
    """`problem` is empty when everything held."""

    seed: int
    problem: str
    edges: list[Record] = field(repr=False)
    limits: Limits
    handoffs: int = 0
    simulated_s: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)


def simulate(seed: int) -> Outcome:
    """The same seed gives the same run, edge for edge."""
    chance = Chance(seed)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder, seeded_scheduler(seed):
        run = Run(chance, Path(folder, "arena"), budgeted=seed >= BUDGET_SEEDS)
        inbox = partial(BusyInbox, run.chance, run.chance.choice(BUSY))
        with quiet(), run.judge.kernel.interposed(), patch.object(owner, "Inbox", inbox):
            problem = ""
            try:
                trio.run(run.main, clock=MockClock(autojump_threshold=0))
            except* Exception as group:
                problem = next(f"{type(error).__name__}: {error}" for error in _leaves(group))
    limits = Limits(min_hold_ms=round(run.judge.min_hold_s * 1e3), quantum_ms=round(run.judge.quantum_s * 1e3))
    return Outcome(seed, problem, run.edges, limits, run.judge.handoffs, run.ended_at, dict(run.clients.ends), run.fault_counts)


def examine(seed: int) -> Outcome:
    """Simulate it, and hold its edges against the tables as `lsm verify` does: two judges, who know different things."""
    outcome = simulate(seed)
    if not outcome.problem:
        for verdict in verify(outcome.edges, outcome.limits):
            if verdict.story is not None:
                return replace(outcome, problem=f"the trace is wrong: {verdict.check}: {verdict.story.what}")
    return outcome


@contextmanager
def quiet() -> Iterator[None]:
    """Owners tell the log what goes wrong, and here much does."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def seeded_scheduler(seed: int) -> Iterator[None]:
    """trio shuffles the tasks that are ready; here it does so by the seed."""
    core: Any = trio._core._run
    before = core._ALLOW_DETERMINISTIC_SCHEDULING, core._r.getstate()
    core._ALLOW_DETERMINISTIC_SCHEDULING = True
    core._r.seed(seed)
    try:
        yield
    finally:
        core._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        core._r.setstate(before[1])


class Run:
    def __init__(self, chance: Chance, arena: Path, budgeted: bool) -> None:
        self.chance = chance
        self._arena = arena
        quantum_s = chance.choice((0.0, 0.25, 1.0, 2.0))
        self.judge = Judge(min_hold_s=0.125, quantum_s=quantum_s, leave_s=BATCH_MAX_S + 3 * RELEASE_MAX_S, budgeted=budgeted)
        self._device = Device(budget=chance.choice(BUDGETS) if budgeted else None)
        self.kernel = self.judge.make_kernel(chance)
        self.clients = Clients(chance)
        self.edges: list[Record] = []
        self.fault_counts: dict[str, int] = {}
        self.ended_at = 0.0

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._setting = self._make_setting(nursery)
            self.edges = self._setting.edges
            self._servers = [Server(self._setting, aliases) for aliases in self._names()]
            self._models = [(server, alias) for server in self._servers for alias in server.aliases]
            for server in self._servers:
                nursery.start_soon(server.run)
            try:
                await self._faulty()
                await self._every_model_wakes()
                await self._one_after_the_other()
                await self._rush()
                await self._stop()
            finally:
                self.ended_at = trio.current_time()
            nursery.cancel_scope.cancel()

    def _make_setting(self, nursery: trio.Nursery) -> Setting:
        chance = self.chance
        return Setting(
            chance, self._arena, self.kernel, self.judge, self._device, nursery,
            min_hold_s=self.judge.min_hold_s, quantum_s=self.judge.quantum_s,
            idle_s=chance.choice((-1.0, -1.0, 0.0, 0.5, 3.0)), evict_kv=chance.random() < 0.5,
        )  # fmt: skip

    def _names(self) -> list[tuple[str, ...]]:
        """Two to four servers, some with two models."""
        names = iter("abcdefgh")
        return [tuple(next(names) for _ in range(self.chance.choice((1, 1, 2)))) for _ in range(self.chance.choice((2, 2, 3, 4)))]

    # ---- the parts ----------------------------------------------------------------------------------------------------------

    async def _faulty(self) -> None:
        """Faults for a while; after that, everything that was asked for must end."""
        enough, pause_s = trio.Event(), self.chance.choice(PAUSES_S)
        async with trio.open_nursery() as visits:
            for server, alias in self._models:
                for _ in range(self.chance.choice((1, 2))):
                    visits.start_soon(self.clients.visit, server, alias, pause_s * self.chance.choice((0.5, 1.0, 2.0)), enough)
            faults = Faults(self._setting, self._servers)
            self.fault_counts = faults.counts
            with trio.move_on_after(self.chance.lasting(8 * pause_s, 16 * pause_s)):
                await faults.run(random_pause_s(self.chance))
            faults.end()
            enough.set()
            visits.cancel_scope.deadline = trio.current_time() + SETTLE_S
        if visits.cancel_scope.cancelled_caught:
            raise Violation(f"{SETTLE_S:.0f} s after the last fault somebody still waits: {self._states()}")
        await trio.sleep(REST_S)
        if left := self.clients.unanswered():
            raise Violation(f"requests that nobody waits for have not ended: {[answer.request_id for answer in left]}; {self._states()}")

    async def _every_model_wakes(self) -> None:
        """All at once: one explicit wake each, then one request."""

        async def one(server: Server, alias: str) -> None:
            life = await server.up()
            await life.owners[alias].wake()
            await self.clients.ask(life, life.owners[alias])

        await self._all_within(WAKE_S, one, "every model wakes and answers")

    async def _one_after_the_other(self) -> None:
        """Whoever has the device is idle, and the ring of the one who wants it may be lost: a slow look finds it."""
        self.kernel.lost_rings = self.chance.choice((0.0, 1.0))
        for server, alias in self._models:
            life = await server.up()
            await trio.sleep(1.0)
            with trio.move_on_after(ONE_S) as patience:
                await self.clients.ask(life, life.owners[alias], tokens=1)
            if patience.cancelled_caught:
                raise Violation(f"{alias} alone wants the device, and does not get it within {ONE_S:.0f} s: {self._states()}")
        self.kernel.lost_rings = 0.0

    async def _rush(self) -> None:
        """Everybody wants the device all the time; every request is answered to its end."""

        async def many(server: Server, alias: str) -> None:
            life = await server.up()
            for _ in range(RUSH_REQUESTS):
                await self.clients.ask(life, life.owners[alias])

        await self._all_within(RUSH_S, many, "every request in a rush is answered")

    async def _stop(self) -> None:
        self._setting.over = True
        for server in self._servers:
            (await server.up()).stop.set()
        with trio.move_on_after(STOP_S) as patience:
            for server in self._servers:
                await server.ended.wait()
        if patience.cancelled_caught:
            raise Violation(f"a server does not stop: {self._states()}")
        if self._setting.device.resident:
            raise Violation(f"after the last stop {self._setting.device.resident[0]} has device memory")

    async def _all_within(self, limit_s: float, act: Callable[[Server, str], Awaitable[None]], what: str) -> None:
        with trio.move_on_after(limit_s) as patience:
            async with trio.open_nursery() as acts:
                for server, alias in self._models:
                    acts.start_soon(act, server, alias)
        if patience.cancelled_caught:
            raise Violation(f"{what}: not within {limit_s:.0f} s: {self._states()}")

    def _states(self) -> str:
        """Of every machine, for people."""
        lives = [server.life for server in self._servers if server.life is not None]
        owners = [owner for life in lives for owner in life.owners.values()]
        return "; ".join(f"{o.alias}: " + " ".join(f"{m}={o.state(m)}" for m in o.machines()) for o in owners)


def _leaves(group: BaseExceptionGroup[Exception]) -> Iterator[Exception]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
