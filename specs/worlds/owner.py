"""One model's owner, and everything that can happen to it.

TOKEN, SLEEP, LOAD and RESIDENCY are coupled as the runtime couples them: one event at a time, its effects in order, and what a
machine tells another goes to the end of one inbox, behind whatever clients, timers and the engine thread have posted meanwhile.

Two liberties, both towards more behaviours: an answer of the line (`first`, `token_won`, ...) comes at any moment between two events
of the inbox, since it is computed when it is delivered; and the engine thread may rest between any two jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsm.arena.victims import Ask
from lsm.machines import MACHINES
from lsm.machines.table import Machine, Refused, step
from specs.worlds.owner_state import ALL, BATCHES, COMPUTE, KV, MOVES, WAKES, WEIGHTS, Owner, Scenario

Step = tuple[str, Owner]
Tables = dict[str, Machine]
TABLES: Tables = {name: MACHINES[name] for name in ("token", "sleep", "load", "residency")}
LATE = {"the KV cache comes back later": KV, "the compute buffers do not come back": COMPUTE}  # mistakes
RELEASES = {"release_compute": COMPUTE, "release_weights": WEIGHTS, "release_kv": KV}


def initial(scenario: Scenario) -> Owner:
    return Owner(clients=(0,) * scenario.clients)


def tell_of(machine: Machine, effect: str) -> str:
    """`machine:event` if the effect's meaning starts so: it is a message to another machine of the owner.  Else empty."""
    found = re.match(r"(\w+): (\w+)", machine.effects[effect])
    if found and found[1] in MACHINES and found[2] in MACHINES[found[1]].events:
        return f"{found[1]}:{found[2]}"
    return ""


class World:
    """The steps of the owner and of its environment, for some tables (mutants, perhaps) and some scenario."""

    def __init__(self, scenario: Scenario, tables: Tables | None = None) -> None:
        self.scenario = scenario
        self.tables = TABLES | (tables or {})
        self.step = step  # the coverage listens here
        self._tells = {(name, effect): tell_of(table, effect) for name, table in self.tables.items() for effect in table.effects}

    def successors(self, owner: Owner) -> list[Step]:
        if owner.refused:
            return [("refused", owner)]
        steps = [*self._line(owner), *self._engine(owner), *self._handle(owner), *self._timers(owner), *self._asks(owner)]
        if len(owner.inbox) < self.scenario.inbox_limit:
            steps += [*self._clients(owner), *self._calls(owner)]
        return steps

    # ---- the owner --------------------------------------------------------------------------------------------------

    def _handle(self, owner: Owner) -> Iterator[Step]:
        """The first event of the inbox."""
        if owner.inbox:
            machine, event = owner.inbox[0].split(":")
            rest = owner._replace(inbox=owner.inbox[1:])
            for facts in self._free_facts(machine, event):
                label = " ".join([f"handle.{machine}.{event}", *(name for name, truth in facts.items() if truth)])
                yield label, self.fire(rest, machine, event, **facts)

    def _free_facts(self, machine: str, event: str) -> list[dict[str, bool]]:
        """Facts that the environment decides: every value is tried."""
        if (machine, event) == ("token", "map_failed"):
            return [{"patient": True}, {"patient": False}]
        if (machine, event) == ("load", "load_failed"):
            return [{"hopeless": True}, {"hopeless": False}]
        return [{}]

    def fire(self, owner: Owner, machine: str, event: str, **free: bool) -> Owner:
        facts = {
            "demanded": owner.demand > 0,
            "evict_kv": self.scenario.evict_kv or owner.asked == Ask.ALL,
            "owed": owner.asked == Ask.ALL and owner.charged > 0,
            "alone": not self.scenario.budget,
            "budgeted": self.scenario.budget,
            "wanted": owner.asked > Ask.NOTHING,
            "encoder_stays": False,  # specs/worlds/encoder.py has encoders
            "rested": not owner.young,
            "due": not any(0 < left <= BATCHES for left in owner.clients) or owner.quantum == 2,
            **free,
        }
        state = getattr(owner, machine)
        try:
            target, effects = self.step(self.tables[machine], state, event, facts)
        except Refused:
            return owner._replace(refused=f"{machine}: {event} in {state}")
        owner = owner._replace(**{machine: target})  # type: ignore[arg-type]  # the field of that name is the machine's state
        for effect in effects:
            owner = self._perform(owner, machine, effect)
        if owner.token != "awake":
            owner = owner._replace(young=False, quantum=0)
        return owner

    def _perform(self, owner: Owner, machine: str, effect: str) -> Owner:
        if tell := self._tells[machine, effect]:
            return _post(owner, tell)
        match effect:
            case "token_drop":
                return owner._replace(locked=False)
            case "discharge":
                return _recount(owner._replace(booked=False)) if self.scenario.budget else owner
            case "recount":
                return _recount(owner) if self.scenario.budget else owner
            case "hold_start":
                return owner._replace(young=True, booked=False)
            case "quantum_start":
                return owner._replace(quantum=max(owner.quantum, 1))
            case "quantum_stop":
                return owner._replace(quantum=0)
            case "demand_add":
                return _demand(owner, 1)
            case "demand_drop":
                return _demand(owner, -1)
            case "idle_start":
                return owner._replace(idle_timer=self.scenario.idle_sleep)
            case "idle_stop":
                return owner._replace(idle_timer=False)
            case "fail_demand":
                wakers = [i for i, left in enumerate(owner.clients) if left == WAKES]
                return _post(_end_all(_fail_later(owner), wakers), "load:refused")
            case "engine_load":
                return owner._replace(jobs=(*owner.jobs, "load"))
            case "engine_free":
                owner = _fail_later(owner)
                return owner._replace(jobs=(*owner.jobs, "free"))
            case "engine_resume":
                wakers = [i for i, left in enumerate(owner.clients) if left == WAKES]
                return _end_all(owner._replace(jobs=(*owner.jobs, effect)), wakers)
            case "release_compute" | "release_weights" | "release_kv" | "report_left" | "report_evicted" | "restore" | "drain":
                return owner._replace(jobs=(*owner.jobs, effect))
        return owner  # kernel calls of the line: specs/worlds/token.py has them

    # ---- the line, seen from one process ----------------------------------------------------------------------------

    def _line(self, owner: Owner) -> Iterator[Step]:
        match owner.token:
            case "doorway":
                yield "line.door_busy", self.fire(owner, "token", "door_busy")
                yield "line.joined", self.fire(self.fire(owner, "token", "door_won"), "token", "made")
                if self.scenario.line_fails:
                    yield "fault.doorway", self.fire(owner, "token", "line_failed")
                    yield "fault.joining", self.fire(self.fire(owner, "token", "door_won"), "token", "line_failed")
            case "waiting":
                yield "line.first", self.fire(owner, "token", "first")
                if self.scenario.line_fails:
                    yield "fault.waiting", self.fire(owner, "token", "line_failed")
            case "taking" if self.scenario.mistake == "answers queue behind the inbox":
                if not owner.locked:
                    yield "line.won", _post(owner._replace(locked=True), "token:token_won")
            case "taking":
                yield "line.token_busy", self.fire(owner, "token", "token_busy")
                yield "line.won", self.fire(owner._replace(locked=True, asked=Ask.NOTHING), "token", "token_won")
                if self.scenario.line_fails:
                    yield "fault.taking", self.fire(owner, "token", "line_failed")
            case "clearing":
                yield "line.room", self.fire(owner._replace(charged=ALL, booked=True), "token", "room")
                yield "line.no_room", self.fire(owner, "token", "look")
                if self.scenario.line_fails:
                    yield "fault.clearing", self.fire(owner, "token", "line_failed")
            case "awake" if self.scenario.budget:
                yield "look.asked", self.fire(owner, "token", "look")
            case "awake":
                for wanted in (False, True):  # others come and go at any time
                    yield f"look.{wanted}", self.fire(owner, "token", "look", wanted=wanted)

    def _asks(self, owner: Owner) -> Iterator[Step]:
        """Somebody has the token and wants our memory; the ring may be lost, and comes again."""
        if not self.scenario.budget or owner.token in MOVES or owner.locked or owner.inbox or owner.jobs:
            return  # asked at another moment, it would be heard at one of these
        for ask in (Ask.NOTHING, Ask.ALL):  # a sleep that is asked for differs from one that is not only by what it leaves
            yield f"ask.{ask.name}", owner._replace(asked=ask)
        if owner.asked:
            yield "ring", _post(owner, "residency:look")

    def _timers(self, owner: Owner) -> Iterator[Step]:
        if owner.token == "retrying" or (owner.token == "waking" and self.scenario.mistake == "an old back-off rings"):
            yield "timer.backoff", self.fire(owner, "token", "backoff_over")
        if owner.young:
            yield "timer.hold", owner._replace(young=False)
        if owner.quantum == 1 and (owner.progress or owner.demand == 0):  # the quantum is longer than a batch
            yield "timer.quantum", owner._replace(quantum=2)
        if owner.idle_timer and len(owner.inbox) < self.scenario.inbox_limit:
            yield "timer.idle", _post(owner._replace(idle_timer=False), "sleep:idle_over")

    # ---- the engine thread ------------------------------------------------------------------------------------------

    def _engine(self, owner: Owner) -> Iterator[Step]:
        """One batch, or the first job: `engine` labels its success, `fault` its failure."""
        if not owner.jobs:
            yield from self._batches(owner)
            return
        job, done = owner.jobs[0], owner._replace(jobs=owner.jobs[1:])
        match job:
            case "engine_resume":
                yield "engine.resume", done._replace(running=True, progress=False)
            case "drain":
                yield "engine.drain", _post(done._replace(running=False), "token:drained")
            case "release_compute" | "release_weights" | "release_kv":
                yield f"engine.{job}", done._replace(device=owner.device & ~RELEASES[job])
            case "report_evicted":
                yield "engine.evicted", _post(done, "residency:evicted")
            case "report_left":
                yield "engine.left", _post(done, "residency:left")
            case "free":
                yield "engine.free", _post(done._replace(device=0, context=False, running=False), "load:freed")
            case "load" | "restore":
                yield f"engine.{job}_starts", self._starts(owner, job)
            case "load!":
                yield "engine.loaded", _post(done._replace(context=True), "load:loaded")  # the abort may come too late
                told = self.scenario.mistake != "a failing load says nothing"
                yield "fault.load", _post(done._replace(device=0), "load:load_failed") if told else done._replace(device=0)
            case "restore!":
                yield from self._restored(owner, done)
            case _:
                assert job.startswith("fail")
                yield "engine.fail", _end_all(done, [int(i) for i in job.removeprefix("fail")])

    def _starts(self, owner: Owner, job: str) -> Owner:
        """From here on there may be memory on the device.  A model that was freed meanwhile cannot be restored."""
        begun = owner._replace(jobs=(job + "!", *owner.jobs[1:]))
        return begun._replace(device=ALL) if job == "load" or owner.context else begun

    def _restored(self, owner: Owner, done: Owner) -> Iterator[Step]:
        if not owner.context:
            yield "engine.nothing_to_restore", _post(done, "residency:enter_failed")
            return
        late = LATE.get(self.scenario.mistake, 0)
        yield "engine.restored", _post(done._replace(device=ALL & ~late), "residency:entered")
        kept = ALL if self.scenario.mistake == "a failed restore keeps what it took" else 0 if self.scenario.evict_kv else KV
        before = done._replace(device=kept)
        yield "fault.restore", _post(before, "residency:enter_failed")
        if self.scenario.file_changes:
            yield "fault.changed", _post(before, "residency:source_changed")

    def _batches(self, owner: Owner) -> Iterator[Step]:
        """A batch has something of every request; that slots share it fairly is the engine's own affair."""
        requests = [i for i, left in enumerate(owner.clients) if 0 < left <= BATCHES]
        if owner.running and requests:
            ended = [i for i in requests if owner.clients[i] == 1]
            clients = tuple(left - 1 if i in requests and left > 1 else left for i, left in enumerate(owner.clients))
            yield "batch", _end_all(owner._replace(progress=True, clients=clients), ended)
            if self.scenario.weights_get_lost:
                lost = owner._replace(running=False, device=owner.device & ~WEIGHTS)
                yield "fault.weights", _post(lost, "residency:weights_lost")

    # ---- clients and callers ----------------------------------------------------------------------------------------

    def _clients(self, owner: Owner) -> Iterator[Step]:
        for i, left in enumerate(owner.clients):
            if left > 0:
                yield f"cancel.{i}", _end(owner, i)
            elif i not in _failing(owner):  # else the next request would be mistaken for the last one
                if owner.load == "ready":
                    yield f"come.{i}", self._come(owner, i)
                if self.scenario.wake_calls and owner.sleep != "awake":
                    caller = _post(owner, "load:load") if owner.load in ("unloaded", "failed") else owner
                    yield f"wake.{i}", _demand(_with_client(caller, i, WAKES), 1)

    def _come(self, owner: Owner, i: int) -> Owner:
        came = _demand(_with_client(owner, i, BATCHES), 1)
        if self.scenario.mistake == "wakes only for idle sleep" and not self.scenario.idle_sleep:
            return came._replace(inbox=owner.inbox)
        return came

    def _calls(self, owner: Owner) -> Iterator[Step]:
        if owner.load in ("unloaded", "failed") or self.scenario.load_calls:
            yield "call.load", _post(owner, "load:load")
        if self.scenario.load_calls:
            yield "call.unload", _post(owner, "load:unload")
        if self.scenario.rest_calls and owner.load == "ready":
            yield "call.rest", _post(owner, "sleep:rest")


def _recount(owner: Owner) -> Owner:
    return owner._replace(charged=ALL if owner.booked else owner.device)


def _post(owner: Owner, message: str) -> Owner:
    return owner._replace(inbox=(*owner.inbox, message))


def _demand(owner: Owner, change: int) -> Owner:
    """The count changes at once; SLEEP hears of it through the inbox."""
    owner = owner._replace(demand=owner.demand + change)
    if change > 0:
        return _post(owner, "sleep:demand")
    return _post(owner, "sleep:relaxed") if owner.demand == 0 else owner


def _with_client(owner: Owner, i: int, left: int) -> Owner:
    return owner._replace(clients=(*owner.clients[:i], left, *owner.clients[i + 1 :]))


def _end(owner: Owner, i: int) -> Owner:
    """The request of client `i` is over, one way or the other."""
    return _demand(_with_client(owner, i, 0), -1)


def _end_all(owner: Owner, clients: list[int]) -> Owner:
    for i in clients:
        if owner.clients[i] > 0:
            owner = _end(owner, i)
    return owner


def _fail_later(owner: Owner) -> Owner:
    """The engine thread fails the requests that it has been given so far, when their turn comes."""
    failing = _failing(owner)
    given = "".join(str(i) for i, left in enumerate(owner.clients) if 0 < left <= BATCHES and i not in failing)
    return owner._replace(jobs=(*owner.jobs, "fail" + given)) if given else owner


def _failing(owner: Owner) -> set[int]:
    """Clients whose failure is on the engine thread's list."""
    return {int(i) for job in owner.jobs if job.startswith("fail") for i in job.removeprefix("fail")}
