"""Executes the tables of `lsm.machines` through `transitions`.  `step` is the meaning; this must agree with it everywhere.

How `transitions` 0.9.3 is used, and why so:
  - one `transitions.Machine` for each table, shared by every instance of it; an instance is a model, added and removed;
  - no queue: its queue would be shared by all instances, and one exception empties it; our callbacks never fire events;
  - a callback only notes which edge was taken: the return value of a trigger cannot say that;
  - no `on_exception`, no `finalize_event` (they swallow BaseException), no automatic transitions, plain string states;
  - 10 to 25 us for each event: right for each phase of a request, wrong for each token.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import transitions

from lsm.machines.table import Edge, Machine, Refused, holds

logging.getLogger("transitions").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Fired:
    """One edge, taken once."""

    machine: str
    subject: str  # whose machine it is: a model's alias, a request's id
    source: str
    event: str
    facts: Mapping[str, bool]
    target: str
    effects: tuple[str, ...]
    t_ns: int  # CLOCK_MONOTONIC: the same clock for every process of this boot


Observer = Callable[[Fired], None]


class Executor:
    """One instance of a machine.  Implements `lsm.machines.table.Instance`.

    Belongs to one owner; not to be fired by two threads at once.  `close` it when the subject is gone.
    """

    def __init__(self, machine: Machine, subject: str, observer: Observer | None = None) -> None:
        self._machine = machine
        self._subject = subject
        self._observer = observer
        self._engine = _engine_of(machine)
        self._model = _Model()
        self._engine.add_model(self._model)

    @property
    def machine(self) -> Machine:
        return self._machine

    @property
    def subject(self) -> str:
        return self._subject

    @property
    def state(self) -> str:
        return self._model.state

    def asks(self, event: str) -> tuple[str, ...]:
        """The facts that decide what this event does in the present state, in the order of the table."""
        at = (self.state, event)
        names = [name.removeprefix("!") for edge in self._machine.edges if (edge.source, edge.event) == at for name in edge.when]
        return tuple(dict.fromkeys(names))

    def fire(self, event: str, **facts: bool) -> tuple[str, ...]:
        """Deliver one event; return the effects to perform, in order (none if the event is ignored here).

        Raises `Refused` when the table has no answer, and AssertionError when a fact that the answer depends on is missing or
        unknown.  Both are mistakes of the caller and change nothing.
        """
        source = self._model.state
        if (source, event) in self._machine.ignores:
            return ()
        self._check(source, event, facts)
        edge = self._take(source, event, facts)
        if self._observer is not None:
            fired = Fired(self._machine.name, self._subject, source, event, dict(facts), edge.target, edge.do, time.monotonic_ns())
            self._observer(fired)
        return edge.do

    def close(self) -> None:
        """Let the shared machine forget this instance.  Closing twice is fine; the last state stays readable."""
        if self._model.open:
            self._model.open = False
            self._engine.remove_model(self._model)

    def _check(self, source: str, event: str, facts: Mapping[str, bool]) -> None:
        where = f"{self._machine.name}/{self._subject}: {event!r} in {source!r}"
        assert self._model.open, f"{where}: this instance is closed"
        missing = sorted(set(self.asks(event)) - facts.keys())
        unknown = sorted(facts.keys() - self._machine.facts.keys())
        assert not missing, f"{where}: missing facts {missing}"
        assert not unknown, f"{where}: unknown facts {unknown}"

    def _take(self, source: str, event: str, facts: Mapping[str, bool]) -> Edge:
        self._model.taken = None
        if event in self._engine.events:
            try:
                self._engine.events[event].trigger(self._model, facts=facts)
            except transitions.MachineError:
                assert self._model.state == source  # raised before anything happens
        edge = self._model.taken
        if edge is None:
            raise Refused(self._machine, source, event)
        return edge


class _Model:
    """What `transitions` decorates with its own attributes, kept apart from `Executor` so that no name can collide."""

    state: str
    taken: Edge | None = None
    open = True


# Keyed by identity: two tables may share a name (a mutant and its original), and a table is not hashable.
_engines: dict[int, tuple[Machine, transitions.Machine]] = {}


def _engine_of(machine: Machine) -> transitions.Machine:
    if id(machine) not in _engines:
        _engines[id(machine)] = (machine, _build(machine))
    return _engines[id(machine)][1]


def _build(machine: Machine) -> transitions.Machine:
    engine = transitions.Machine(
        model=None,
        states=list(machine.states),
        initial=machine.initial,
        auto_transitions=False,
        send_event=True,
        queued=False,
        ignore_invalid_triggers=False,
    )
    for edge in machine.edges:
        engine.add_transition(
            edge.event,
            edge.source,
            None if edge.target == edge.source else edge.target,  # None: internal, the state is not left and entered again
            conditions=_condition(edge),
            after=_note(edge),
        )
    return engine


def _condition(edge: Edge) -> Callable[[Any], bool]:
    return lambda call: holds(edge.when, call.kwargs["facts"])


def _note(edge: Edge) -> Callable[[Any], None]:
    def note(call: Any) -> None:
        call.model.taken = edge

    return note
