"""One server: it lives, is stopped or killed, and lives again.  Owners and lines are the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import trio

from lsm.arena.ledger import Ledger
from lsm.arena.line import Line
from lsm.errors import ArenaError
from lsm.runtime.executor import Fired
from lsm.runtime.owner import Owner
from lsm.runtime.room_effects import Budget
from lsm.verify.record import Record
from specs.simulation.chance import Chance
from specs.simulation.device import Device
from specs.simulation.engine import ModelFile, SimulatedEngine
from specs.simulation.judge import Judge, Violation, WatchedChanges
from specs.simulation.kernel import Kernel, Killed, Place, Process

EDGES_MAX = 50_000  # fifty times what a run takes


@dataclass(eq=False)
class Setting:
    """What all servers of a run share."""

    chance: Chance
    arena: Path
    kernel: Kernel
    judge: Judge
    device: Device
    nursery: trio.Nursery
    min_hold_s: float
    quantum_s: float
    idle_s: float
    evict_kv: bool
    files: dict[str, ModelFile] = field(default_factory=dict)
    edges: list[Record] = field(default_factory=list)
    calm: bool = False  # faults have stopped
    over: bool = False  # who is stopped now stays down
    pids: Iterator[int] = field(default_factory=partial(count, 1))


@dataclass(eq=False)
class Life:
    """From start to death of one process."""

    process: Process
    owners: dict[str, Owner] = field(default_factory=dict)
    connections: dict[int, trio.CancelScope] = field(default_factory=dict)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stop: trio.Event = field(default_factory=trio.Event)
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Is cut when the process dies."""
        number = next(self._numbers)
        with trio.CancelScope() as scope:
            self.connections[number] = scope
            try:
                yield
            except Killed:
                pass
            finally:
                del self.connections[number]

    def kill(self) -> None:
        self.process.die()
        self.scope.cancel()


class Server:
    def __init__(self, setting: Setting, aliases: tuple[str, ...]) -> None:
        self.aliases = aliases
        self.life: Life | None = None  # None: it is down
        self.stop_next_after_s: float | None = None  # the next life is a short one
        self.ended = trio.Event()
        self._setting = setting
        self._up = trio.Event()

    async def run(self) -> None:
        """One life after the other, until the run is over."""
        chance = self._setting.chance
        while not self._setting.over:
            await self._live(Life(Process(next(self._setting.pids))))
            await trio.sleep(0.01 if self._setting.calm else chance.pause(1.0))
        self.ended.set()

    async def up(self) -> Life:
        while self.life is None:
            await self._up.wait()
        return self.life

    async def _live(self, life: Life) -> None:
        try:
            with life.scope:
                await self._serve(life)
        except* Killed:
            life.process.dead = True
        except* ArenaError:  # no descriptor was left to start with
            life.process.dead = True
        finally:
            self.life, self._up = None, trio.Event()
            for scope in life.connections.values():
                scope.cancel()
        if life.process.dead:
            await self._bury(life)
        self._setting.judge.forget(life.process)

    async def _serve(self, life: Life) -> None:
        with ExitStack() as lines:
            async with trio.open_nursery() as nursery:
                changes = WatchedChanges(self._setting.judge, life.process)
                for alias in self.aliases:
                    place = Place(life.process, alias)
                    life.owners[alias] = self._owner(place, changes, lines, nursery)
                    await nursery.start(life.owners[alias].run)
                self.life = life
                self._up.set()
                nursery.start_soon(_load_in_order, life)
                if self.stop_next_after_s is not None:
                    nursery.start_soon(_stop_after, life, self.stop_next_after_s)
                    self.stop_next_after_s = None
                await life.stop.wait()
                async with trio.open_nursery() as stopping:
                    for owner in life.owners.values():
                        stopping.start_soon(owner.stop)
                self._check_stopped(life.process)
                nursery.cancel_scope.cancel()

    def _check_stopped(self, process: Process) -> None:
        self._setting.judge.check_stopped(process)
        for place in self._setting.device.resident:
            if place.process is process:
                raise Violation(f"{place} has stopped and keeps device memory")

    def _owner(self, place: Place, changes: WatchedChanges, lines: ExitStack, nursery: trio.Nursery) -> Owner:
        setting = self._setting
        setting.kernel.newborn = place
        try:
            line = lines.enter_context(Line(setting.arena, place.alias))
            ledger = lines.enter_context(Ledger(setting.arena, place.alias))
        finally:
            setting.kernel.newborn = None
        file = setting.files.setdefault(place.alias, ModelFile())
        owner = Owner(
            place.alias,
            line,
            ledger,
            partial(SimulatedEngine, nursery, setting.chance, setting.device, setting.judge, place, file),
            changes,
            budget=Budget(setting.device.budget, clock_s=trio.current_time),
            min_hold_s=setting.min_hold_s,
            quantum_s=setting.quantum_s,
            idle_s=setting.idle_s,
            evict_kv=setting.evict_kv,
            observer=self._observer(place.process),
        )
        setting.judge.add(place, owner)
        return owner

    def _observer(self, process: Process) -> Callable[[Fired], None]:
        def observe(fired: Fired) -> None:
            process.touch()
            if len(self._setting.edges) >= EDGES_MAX:
                raise Violation(f"{EDGES_MAX} edges and no end: something goes round in circles")
            t_ns = round(trio.current_time() * 1e9)
            facts, effects = dict(fired.facts), fired.effects
            record = Record(t_ns, process.pid, 0, fired.machine, fired.subject, fired.source, fired.event, facts, fired.target, effects)
            self._setting.edges.append(record)

        return observe

    async def _bury(self, life: Life) -> None:
        """What the kernel and the driver do: locks go in any order, memory may go later."""
        setting, chance = self._setting, self._setting.chance
        for place in [place for place, sizes in setting.device.bytes.items() if place.process is life.process and sizes]:
            setting.nursery.start_soon(setting.device.reclaim, place, chance.choice((0.0, 0.1, 0.5, 1.5, 4.0)))
        await setting.kernel.bury(life.process)


async def _stop_after(life: Life, seconds: float) -> None:
    await trio.sleep(seconds)
    life.stop.set()


async def _load_in_order(life: Life) -> None:
    for owner in life.owners.values():
        await owner.load()
