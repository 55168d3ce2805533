"""The environment of TOKEN: N processes, four kinds of flock, a line of tickets, one device, `kill -9` between any two kernel calls.

What a process keeps in its kernel objects is changed by one effect at a time, so that it can die between any two.  An effect that is
answered by an event (`token_try`, `device_map`, ...) changes nothing here by itself: the answer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsm.machines.table import Machine, step
from lsm.machines.token import TOKEN
from specs.worlds.token_state import DEAD, FIRST, GONE, NOBODY, Arena, Faults, Process

Step = tuple[str, Arena]

KERNEL = ("ticket_lock", "door_open", "bell_ring", "look_ahead", "token_drop", "ticket_unlink", "ticket_close", "want_drop")


def initial(n: int) -> Arena:
    return Arena((), (Process(),) * n)


class World:
    """The steps of N processes that execute `table`."""

    def __init__(self, faults: Faults | None = None, table: Machine = TOKEN) -> None:
        self.faults = faults or Faults()
        self.table = table
        self.step = step  # the coverage listens here

    def successors(self, arena: Arena) -> list[Step]:
        steps: list[Step] = []
        if self.faults.stranger and (arena.stranger or not any(p.token for p in arena.processes)):
            steps.append(("stranger", arena._replace(stranger=not arena.stranger)))
        for i, process in enumerate(arena.processes):
            if process.state == DEAD:
                moves = self._bury(arena, i, process)
            else:
                moves = self._live(arena, i, process)
            steps += [(f"{label}.{i}", target) for label, target in moves if target != arena]
        return steps

    def _live(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        if self.faults.crash:
            yield "crash", _killed(arena, i, p)
        yield from self._time_and_load(arena, i, p)
        if p.todo:
            yield from self._perform(arena, i, p)
        else:
            yield from self._events(arena, i, p)

    def _time_and_load(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        if p.young or p.fresh:
            looks = self.faults.mistake != "no look when the hold is over"
            yield "hold_over", _put(arena, i, p._replace(young=False, fresh=False, look=looks))
        if p.quantum == 1:
            yield "quantum_over", _put(arena, i, p._replace(quantum=2, look=True))
        if p.busy:
            yield "done", _put(arena, i, p._replace(busy=False, look=p.state == "awake"))
        if p.token and self.faults.mistake == "a child lets go":
            yield "child_lets_go", _put(arena, i, p._replace(token=False))
        if p.state == "awake":
            if self.faults.serves and not p.busy:
                yield "serve", _put(arena, i, p._replace(busy=True))
            if self.faults.slow_check and not p.look:
                yield "slow_check", _put(arena, i, p._replace(look=True))

    # ---- events -----------------------------------------------------------------------------------------------------

    def _events(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        others = [other for j, other in enumerate(arena.processes) if j != i]
        match p.state:
            case "asleep":
                yield self._fire(arena, i, p, "need")
            case "doorway":
                yield from self._door(arena, i, p, others)
            case "joining":
                yield self._made(arena, i, p)
                if self.faults.line_fails:
                    yield self._fire(arena._replace(line=_alive(arena)), i, p, "line_failed")
            case "waiting":
                if p.watch == FIRST:
                    yield self._fire(arena, i, p._replace(watch=NOBODY), "first")
                elif p.watch == GONE or not arena.processes[p.watch].ticket:
                    yield self._fire(arena, i, p._replace(watch=NOBODY), "ahead_gone")
                yield from self._escapes(arena, i, p._replace(watch=NOBODY))
            case "taking":
                if arena.stranger or any(other.token for other in others):
                    yield self._fire(arena, i, p, "token_busy")
                else:
                    yield self._fire(arena, i, p._replace(token=True), "token_won")
                yield from self._escapes(arena, i, p)
            case "waking":
                room = not any(other.resident for other in others)
                if room:
                    yield self._fire(arena, i, p._replace(resident=True, fresh=True), "mapped")
                if self.faults.map_fails or not room:
                    yield self._fire(arena, i, p, "map_failed", patient=True)
                    yield self._fire(arena, i, p, "map_failed", patient=False)
            case "retrying":
                yield self._fire(arena, i, p, "backoff_over")
            case "awake":
                if p.look:
                    yield self._fire(arena, i, p._replace(look=False), "look")
                if self.faults.releases:
                    yield self._fire(arena, i, p._replace(young=False, fresh=False), "release")  # the hold is only owed to ourselves
            case "draining":
                if not p.busy:
                    yield self._fire(arena, i, p, "drained")
            case "sleeping":
                yield self._fire(arena, i, p._replace(resident=False), "unmapped")

    def _escapes(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        if self.faults.cancel:
            yield self._fire(arena, i, p, "cancel")
        if self.faults.line_fails:
            yield self._fire(arena, i, p, "line_failed")

    def _door(self, arena: Arena, i: int, p: Process, others: list[Process]) -> Iterator[Step]:
        """`door_try` is two kernel calls; nothing is delivered between them."""
        if p.door:
            yield self._fire(arena, i, p._replace(want=self.faults.mistake != "rings before it wants"), "door_won")
            if any(other.state == "awake" for other in others):  # it may be probing want.lock just now
                yield self._fire(arena, i, p._replace(door=False), "door_busy")
            return
        if self.faults.mistake == "no door" or not any(other.door for other in others):
            yield "door_lock", _put(arena, i, p._replace(door=True))
        else:
            yield self._fire(arena, i, p, "door_busy")
        yield from self._escapes(arena, i, p)

    def _made(self, arena: Arena, i: int, p: Process) -> Step:
        """Dead tickets are swept, ours comes behind the living."""
        alive = _alive(arena)
        processes = list(arena.processes)
        for place, owner in enumerate(arena.line):
            if owner != NOBODY and owner not in alive and place >= len(alive):
                # Closed before it was unlinked (planted): the number is given again, and the name that is about to go is ours.
                processes[owner] = processes[owner]._replace(ghost=i)
        return self._fire(Arena((*alive, i), tuple(processes), arena.stranger), i, processes[i], "made")

    def _fire(self, arena: Arena, i: int, p: Process, event: str, patient: bool = True) -> Step:
        """`p` is the process as the environment has changed it along with the event."""
        facts = {
            "alone": True,  # under a budget: specs/worlds/budget.py
            "budgeted": False,
            "wanted": any(other.want for j, other in enumerate(arena.processes) if j != i),
            "rested": not p.young,
            "due": not p.busy or (p.quantum == 2 and self.faults.mistake != "yields only when idle"),
            "patient": patient,
        }
        state, effects = self.step(self.table, p.state, event, facts)
        p = p._replace(state=state, todo=tuple(effect for effect in effects if effect in KERNEL))
        if state != "awake":
            p = p._replace(look=False, quantum=0)
        if event == "look" and state != "awake" and not facts["wanted"]:
            p = p._replace(needless=True)
        if "hold_start" in effects:
            p = p._replace(young=True)
        if "quantum_start" in effects:
            p = p._replace(quantum=max(p.quantum, 1))
        if "quantum_stop" in effects:
            p = p._replace(quantum=0)
        return event, _put(arena, i, p)

    # ---- effects: one kernel call each ------------------------------------------------------------------------------

    def _perform(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        effect, p = p.todo[0], p._replace(todo=p.todo[1:])
        match effect:
            case "ticket_lock":
                yield effect, _put(arena, i, p._replace(ticket=True))
                if self.faults.line_fails:
                    left = arena._replace(line=_without(arena.line, i))
                    yield "ticket_spoiled", self._fire(left, i, p._replace(door=False), "line_failed")[1]
            case "door_open":
                yield effect, _put(arena, i, p._replace(door=False))
            case "want_drop":
                yield effect, _put(arena, i, p._replace(want=False))
            case "token_drop":
                yield effect, _put(arena, i, p._replace(token=False))
            case "ticket_unlink":
                name = i if p.ghost == NOBODY else p.ghost
                yield effect, _put(arena._replace(line=_without(arena.line, name)), i, p._replace(ghost=NOBODY))
            case "ticket_close":
                closed = _put(arena, i, p._replace(ticket=False, watch=NOBODY))
                yield effect, closed if self.faults.mistake == "slots are used again" else _hung_up(closed, i)
            case "look_ahead":
                yield effect, self._looked(arena, i, p)
            case "bell_ring":
                yield from self._ring(arena, i, p)

    def _looked(self, arena: Arena, i: int, p: Process) -> Arena:
        place = arena.line.index(i) if i in arena.line else len(arena.line)
        ahead = [owner for owner in arena.line[:place] if _lives(arena, owner)]
        if self.faults.mistake == "waiters sweep":
            arena = arena._replace(line=tuple(_alive(arena)))
        if self.faults.mistake == "rings before it wants":
            p = p._replace(want=True)
        return _put(arena, i, p._replace(watch=ahead[-1] if ahead else FIRST))

    def _ring(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        rung = _put(arena, i, p)
        holder = next((j for j, other in enumerate(arena.processes) if other.state == "awake"), None)
        if holder is None:
            yield "bell_ring", rung
            return
        if self.faults.rings_lost:
            yield "bell_lost", rung
        yield "bell_ring", _put(rung, holder, rung.processes[holder]._replace(look=True))

    def _bury(self, arena: Arena, i: int, p: Process) -> Iterator[Step]:
        """The kernel takes back what a dead process had: lock by lock in any order, its device memory perhaps much later."""
        if p.door:
            yield "free_door", _put(arena, i, p._replace(door=False))
        if p.want:
            yield "free_want", _put(arena, i, p._replace(want=False))
        if p.token and self.faults.mistake != "a child keeps the token":
            yield "free_token", _put(arena, i, p._replace(token=False))
        if p.ticket:
            yield "free_ticket", _hung_up(_put(arena._replace(line=_orphaned(arena.line, i)), i, p._replace(ticket=False)), i)
        if p.resident and self.faults.mistake != "the dead keep their memory":
            yield "reap", _put(arena, i, p._replace(resident=False))
        if p == Process(DEAD):
            yield "restart", _put(arena, i, Process())


def _put(arena: Arena, i: int, process: Process) -> Arena:
    processes = arena.processes
    return Arena(arena.line, (*processes[:i], process, *processes[i + 1 :]), arena.stranger)


def _lives(arena: Arena, owner: int) -> bool:
    return owner != NOBODY and arena.processes[owner].ticket


def _alive(arena: Arena) -> tuple[int, ...]:
    return tuple(owner for owner in arena.line if _lives(arena, owner))


def _without(line: Iterable[int], owner: int) -> tuple[int, ...]:
    return tuple(other for other in line if other != owner)


def _orphaned(line: Iterable[int], owner: int) -> tuple[int, ...]:
    return tuple(NOBODY if other == owner else other for other in line)


def _hung_up(arena: Arena, i: int) -> Arena:
    """Everybody who watches the ticket of `i` hears of it, and for good: nobody locks it again."""
    return arena._replace(processes=tuple(p._replace(watch=GONE) if p.watch == i else p for p in arena.processes))


def _killed(arena: Arena, i: int, p: Process) -> Arena:
    line = arena.line if p.ticket else _orphaned(arena.line, i)
    dead = Process(DEAD, door=p.door, want=p.want, ticket=p.ticket, token=p.token, resident=p.resident)
    return _put(arena._replace(line=line), i, dead)
