"""Processes that share a device under a budget: TOKEN, the ledger, the bells on its pages, `kill -9` between any two acts.

The line is taken as specs/worlds/token.py has shown it to be: first come, first served among the living.  Whom an asker chooses is free
among the sets that suffice and hold nobody in vain, so every choice that `lsm.arena.victims` can make, by size and time of use, is one
of the runs; like that function it goes on asking those it has asked, as long as they are enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lsm.arena.victims import Ask
from lsm.machines.table import Machine, step
from lsm.machines.token import TOKEN
from specs.worlds.budget_state import DEAD, Arena, Process, Scenario

Step = tuple[str, Arena]

KERNEL = ("room_look", "asks_drop", "discharge", "token_drop", "ticket_close")


def initial(scenario: Scenario) -> Arena:
    return Arena((), (Process(asks=(0,) * scenario.n),) * scenario.n)


class World:
    """The steps of all processes, which execute `table`."""

    def __init__(self, scenario: Scenario, table: Machine = TOKEN) -> None:
        self.scenario = scenario
        self.table = table
        self.step = step  # the coverage listens here
        self._nobody = (0,) * scenario.n

    def successors(self, arena: Arena) -> list[Step]:
        steps = []
        for i, process in enumerate(arena.processes):
            moves = self._bury(arena, i, process) if process.state == DEAD else self._live(arena, i, process)
            steps += [(f"{label}.{i}", target) for label, target in moves]
        return steps

    def _live(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        if self.scenario.crash:
            yield "crash", _put(arena, i, Process(DEAD, token=p.token, entry=p.entry, old=p.old, memory=p.memory, asks=p.asks))
        yield from self._time_and_load(arena, i, p)
        if p.todo:
            yield from self._perform(arena, i, p)
        else:
            yield from self._events(arena, i, p)

    def _time_and_load(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        if p.young or p.fresh:
            yield "hold_over", _put(arena, i, p._replace(young=False, fresh=False, look=True))
        if p.quantum == 1:
            yield "quantum_over", _put(arena, i, p._replace(quantum=2, look=True))
        if p.busy:
            yield "done", _put(arena, i, p._replace(busy=False, look=p.look or p.state == "awake"))
        elif p.state == "awake" and self.scenario.serves:
            yield "serve", _put(arena, i, p._replace(busy=True))
        if p.state == "clearing" and not p.look and self.scenario.mistake != "nobody rings again":
            yield "room_check", _put(arena, i, p._replace(look=True))

    # ---- events -------------------------------------------------------------------------------------------------------

    def _events(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        match p.state:
            case "asleep":
                yield "need", self._joined(arena, i, p)
            case "waiting":
                if arena.line[0] == i and not any(other.token for other in arena.processes):
                    won = self._fire(arena, i, p, "first")
                    yield "token_won", self._fire(won, i, won.processes[i]._replace(token=True), "token_won")
                if self.scenario.escapes:
                    yield "cancel", self._fire(arena, i, p, "cancel")
            case "clearing":
                if p.look:
                    yield "look", self._fire(arena, i, p._replace(look=False), "look")
                if self.scenario.escapes:
                    yield "cancel", self._fire(arena, i, p, "cancel")
            case "waking":
                yield "mapped", self._fire(arena, i, self._mapped(p), "mapped")
                if self.scenario.escapes:
                    for patient in (True, False):
                        yield "map_failed", self._fire(arena, i, p, "map_failed", patient)
            case "retrying":
                yield "backoff_over", self._fire(arena, i, p, "backoff_over")
            case "awake":
                if p.look:
                    yield "look", self._fire(arena, i, p._replace(look=False), "look")
                if self.scenario.escapes:
                    left = p._replace(young=False, fresh=False)  # the hold is only owed to ourselves
                    yield "release", self._fire(arena, i, left, "release")
            case "draining":
                if not p.busy:
                    yield "drained", self._fire(arena, i, self._drained(arena, i, p), "drained")
            case "sleeping":
                yield "unmapped", self._fire(arena, i, p._replace(memory=self._left(arena, i, p)), "unmapped")
        if p.look and p.state in ("asleep", "waiting"):
            yield "evict", self._evicted(arena, i, p)

    def _joined(self, arena: Arena, i: int, p: Process) -> Arena:
        """Through the door and into the line, in one step."""
        for event in ("need", "door_won", "made"):
            arena = self._fire(arena, i, p, event)
            p = arena.processes[i]
        return arena._replace(line=(*arena.line, i))

    def _mapped(self, p: Process) -> Process:
        late = self.scenario.mistake == "written after the memory was taken"
        return p._replace(memory=self.scenario.needs, fresh=True, todo=("charge",) if late else ())

    def _drained(self, arena: Arena, i: int, p: Process) -> Process:
        early = self.scenario.mistake == "struck out before the memory has left"
        return p._replace(entry=self._left(arena, i, p)) if early else p

    def _left(self, arena: Arena, i: int, p: Process) -> int:
        """What remains on the device after a sleep."""
        return 0 if _asked(arena, i) == Ask.ALL else min(p.memory, self.scenario.stays)

    def _evicted(self, arena: Arena, i: int, p: Process) -> Arena:
        """RESIDENCY's look while away; the memory has gone, the ledger will say so."""
        heard = p._replace(look=False)
        owed = _asked(arena, i) == Ask.ALL and p.entry > 0
        if not owed or self.scenario.mistake == "what stayed is never given":
            return _put(arena, i, heard)
        return _put(arena, i, heard._replace(memory=0, todo=("discharge",)))

    def _fire(self, arena: Arena, i: int, p: Process, event: str, patient: bool = True) -> Arena:
        """`p` is the process as the environment has changed it along with the event."""
        facts = {
            "alone": False,
            "budgeted": True,
            "wanted": _asked(arena, i) > Ask.NOTHING,
            "rested": not p.young,
            "due": not p.busy or (p.quantum == 2 and self.scenario.mistake != "yields only when idle"),
            "patient": patient,
        }
        state, effects = self.step(self.table, p.state, event, facts)
        p = p._replace(state=state, todo=(*p.todo, *(effect for effect in effects if effect in KERNEL)))
        if state not in ("awake", "clearing"):
            p = p._replace(look=False, quantum=0)
        if event == "look" and state == "draining" and not facts["wanted"]:
            p = p._replace(needless=True)
        if "hold_start" in effects:
            p = p._replace(young=True)
        if "quantum_start" in effects:
            p = p._replace(quantum=max(p.quantum, 1))
        if "quantum_stop" in effects:
            p = p._replace(quantum=0)
        return _put(arena, i, p)

    # ---- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        effect, p = p.todo[0], p._replace(todo=p.todo[1:])
        match effect:
            case "room_look":
                yield from self._room_look(arena, i, p)
            case "asks_drop":
                yield effect, _put(arena, i, p._replace(asks=self._nobody))
            case "charge":
                yield effect, _put(arena, i, p._replace(entry=self.scenario.needs))
            case "discharge":
                listening = [j for j, q in enumerate(arena.processes) if q.state == "clearing"]
                yield from self._ring(_put(arena, i, p._replace(entry=p.memory)), effect, *listening)
            case "token_drop":
                yield effect, _put(arena, i, p._replace(token=False))
            case "ticket_close":
                yield effect, _put(arena._replace(line=tuple(other for other in arena.line if other != i)), i, p)

    def _room_look(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        """Strike out the dead whose memory is free; then there is room, and it is ours; or others are asked."""
        arena = self._swept(_put(arena, i, p))
        p = arena.processes[i]
        beside = sum(q.entry for j, q in enumerate(arena.processes) if j != i) + sum(q.old for q in arena.processes)
        missing = beside + self.scenario.needs - self.scenario.budget
        if self.scenario.mistake == "one unit too much":
            missing -= 1
        if missing <= 0:
            late = self.scenario.mistake == "written after the memory was taken"
            entry = p.entry if late else self.scenario.needs
            yield "room", self._fire(arena, i, p._replace(entry=entry), "room")
            return
        of_the_dead = sum(q.entry for q in arena.processes if q.state == DEAD)  # it comes back by itself
        for asks in self._choices(arena, i, missing - of_the_dead):
            yield from self._ring(_put(arena, i, p._replace(asks=asks)), "no_room", *(j for j, ask in enumerate(asks) if ask))

    def _swept(self, arena: Arena) -> Arena:
        def gone(q: Process) -> bool:
            return q.state == DEAD and (not q.memory or self.scenario.mistake == "the bytes of the dead do not count")

        if self.scenario.mistake == "the bytes of the dead count for ever":
            return arena
        return arena._replace(processes=tuple(q._replace(old=0, entry=0 if gone(q) else q.entry) for q in arena.processes))

    def _choices(self, arena: Arena, i: int, missing: int) -> list[tuple[int, ...]]:
        """Minimal sufficient asks; if those of the last look still are one, only these.  None suffices now: the last ones stay."""
        now = arena.processes[i].asks
        ranges = [self._levels(q) if j != i else (0,) for j, q in enumerate(arena.processes)]
        sets = [asks for asks in product(*ranges) if self._freed(arena, asks) >= missing]
        minimal = [asks for asks in sets if not any(other != asks and all(map(int.__le__, other, asks)) for other in sets)]
        return [now] if now in minimal or not minimal else minimal

    def _levels(self, q: Process) -> tuple[int, ...]:
        """How q can be asked: not at all, for what leaves with every sleep, for everything; each only if it gives something."""
        if q.state == DEAD or (q.young and self.scenario.mistake != "the hold protects nobody"):
            return (0,)
        stays = min(q.entry, self.scenario.stays)
        return (0, *((Ask.SOME,) if q.entry > stays else ()), *((Ask.ALL,) if stays else ()))

    def _freed(self, arena: Arena, asks: tuple[int, ...]) -> int:
        stays = self.scenario.stays
        given = {Ask.NOTHING: lambda entry: 0, Ask.SOME: lambda entry: entry - min(entry, stays), Ask.ALL: lambda entry: entry}
        return sum(given[Ask(ask)](q.entry) for q, ask in zip(arena.processes, asks, strict=True))

    def _ring(self, arena: Arena, label: str, *rung: int) -> Iterator[Step]:
        """All of these hear it; or none does."""
        heard = arena
        for j in rung:
            q = heard.processes[j]
            if q.state in ("awake", "clearing") or (q.state in ("asleep", "waiting") and q.entry):
                heard = _put(heard, j, q._replace(look=True))
        yield label, heard
        if heard != arena and self.scenario.rings_lost:
            yield f"{label}_lost", arena

    # ---- death --------------------------------------------------------------------------------------------------------

    def _bury(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        """The kernel takes back what a dead process had, in any order; its device memory perhaps much later; its page is left."""
        if p.token:
            yield "free_token", _put(arena, i, p._replace(token=False))
        if any(p.asks):
            yield "free_asks", _put(arena, i, p._replace(asks=self._nobody))
        if i in arena.line:
            yield "free_ticket", arena._replace(line=tuple(other for other in arena.line if other != i))
        if p.memory:
            yield "reap", _put(arena, i, p._replace(memory=0))
        if not (p.token or any(p.asks) or i in arena.line or p.memory or (p.old and p.entry)):
            yield "restart", _put(arena, i, Process(asks=self._nobody, old=p.old + p.entry))


def _put(arena: Arena, i: int, process: Process) -> Arena:
    return arena._replace(processes=(*arena.processes[:i], process, *arena.processes[i + 1 :]))


def _asked(arena: Arena, i: int) -> int:
    return max(q.asks[i] for q in arena.processes)
