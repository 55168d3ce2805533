"""Visits every state of a world, breadth first.  Small on purpose: this is the part that must be right.

A world is an initial state (hashable) and a function from a state to its successors, each with the label of the step that leads
there.  What is found comes back as the shortest path that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Successors = Callable[[State], Iterable[tuple[str, State]]]
Predicate = Callable[[State], bool]


class TooManyStates(Exception):
    """The world is larger than the limit: nothing was proved."""


@dataclass(frozen=True, slots=True)
class Path(Generic[State]):
    """The labels of the steps from the initial state, and the state they lead to."""

    labels: tuple[str, ...]
    state: State
    states: tuple[State, ...] = ()  # the initial one, and the one after each step

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{' '.join(self.labels) or '(initial state)'} => {self.state}"


@dataclass(slots=True)
class Graph(Generic[State]):
    """Every state that can be reached, by number: 0 is the initial one, and a lower number is not farther away."""

    states: list[State]
    steps: list[list[tuple[str, int]]]  # for each state: label and number of each successor
    parents: list[tuple[int, str]]  # for each state: how it was found first; (-1, "") for the initial one
    loops: int = 0  # steps that change nothing: counted, as SPIN counts them, but they help nobody and are not among `steps`

    def path(self, number: int) -> Path[State]:
        """The shortest path to a state."""
        states, labels = [self.states[number]], []
        while number > 0:
            number, label = self.parents[number]
            labels.append(label)
            states.append(self.states[number])
        return Path(tuple(reversed(labels)), states[0], tuple(reversed(states)))


@dataclass(slots=True)
class Report(Generic[State]):
    """What one exploration found; `problems` is empty when every claim holds."""

    graph: Graph[State]
    broken: dict[str, Path[State]] = field(default_factory=dict)  # invariant -> shortest counterexample
    stuck: Path[State] | None = None  # a state that nothing leads out of
    stranded: dict[str, Path[State]] = field(default_factory=dict)  # goal -> nearest state from which it cannot be reached

    @property
    def state_count(self) -> int:
        return len(self.graph.states)

    @property
    def transition_count(self) -> int:
        return sum(map(len, self.graph.steps)) + self.graph.loops

    @property
    def problems(self) -> dict[str, Path[State]]:
        stuck = {"stuck": self.stuck} if self.stuck else {}
        return {**self.broken, **stuck, **{f"cannot reach: {goal}": path for goal, path in self.stranded.items()}}


def explore(
    initial: State,
    successors: Successors[State],
    invariants: Mapping[str, Predicate[State]],
    goals: Mapping[str, Predicate[State]] | None = None,
    limit: int = 2_000_000,
) -> Report[State]:
    """Every invariant holds in every state; no state is without successors; from every state each goal can still be reached.

    Raises TooManyStates when there are more than `limit` states.
    """
    report = Report(reach(initial, successors, limit))
    graph = report.graph
    for number, state in enumerate(graph.states):
        for name, holds in invariants.items():
            if name not in report.broken and not holds(state):
                report.broken[name] = graph.path(number)
        if report.stuck is None and not graph.steps[number]:
            report.stuck = graph.path(number)
    for name, goal in (goals or {}).items():
        stranded = first_stranded(graph, goal)
        if stranded is not None:
            report.stranded[name] = graph.path(stranded)
    return report


def first_broken(
    initial: State, successors: Successors[State], invariants: Mapping[str, Predicate[State]], limit: int = 2_000_000
) -> tuple[str, Path[State]] | None:
    """The invariant that breaks nearest to the initial state, with its counterexample; looks no farther than that.

    Raises TooManyStates when none of `limit` states breaks one and there are more.
    """
    graph = reach(initial, successors, limit, stop=lambda state: not all(holds(state) for holds in invariants.values()))
    name = next((name for name, holds in invariants.items() if not holds(graph.states[-1])), None)
    return None if name is None else (name, graph.path(len(graph.states) - 1))


def reach(initial: State, successors: Successors[State], limit: int, stop: Predicate[State] = lambda state: False) -> Graph[State]:
    """The graph of all states, in order of distance from the initial one; it ends with the first for which `stop` holds."""
    number = {initial: 0}
    graph: Graph[State] = Graph([initial], [], [(-1, "")])
    if stop(initial):
        return graph
    for source in range(limit + 1):
        if source == len(graph.states):
            return graph
        steps = []
        for label, state in successors(graph.states[source]):
            target = number.setdefault(state, len(graph.states))
            if target == source:
                graph.loops += 1
                continue
            if target == len(graph.states):
                graph.states.append(state)
                graph.parents.append((source, label))
                if stop(state):
                    return graph
            steps.append((label, target))
        graph.steps.append(steps)
        if len(graph.states) > limit:
            break
    raise TooManyStates(f"more than {limit} states")


def first_stranded(graph: Graph[State], goal: Predicate[State]) -> int | None:
    """The nearest state from which no state of the goal can be reached."""
    sources: list[list[int]] = [[] for _ in graph.states]
    for source, steps in enumerate(graph.steps):
        for _, target in steps:
            sources[target].append(source)
    todo = [number for number, state in enumerate(graph.states) if goal(state)]
    saved = set(todo)
    while todo:
        for source in sources[todo.pop()]:
            if source not in saved:
                saved.add(source)
                todo.append(source)
    return next((number for number in range(len(graph.states)) if number not in saved), None)
