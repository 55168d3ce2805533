"""Liveness under weak fairness: can a run stay in a region for ever although everybody who could always move does move?

A step belongs to a group (a process, a timer, a client).  A run is fair when no group could move continuously from some time on and
never does.  Some groups are assumed to move only finitely often (somebody who cancels again and again is not our fault).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from specs.explore import Graph, Path, Predicate, State

FINITE = "finite"  # the group of steps that a run may take only finitely often
Group = Callable[[str], str | None]  # of a label; None: nobody is obliged to take this step


def fair_lasso(graph: Graph[State], region: Predicate[State], group: Group) -> Path[State] | None:
    """The shortest path to a place where a fair run can stay inside `region` for ever; None: every fair run leaves it.

    Staying in one state counts as a run when no group that is obliged to move can move there.
    """
    inside = {number for number, state in enumerate(graph.states) if region(state)}
    found = min((min(part) for part in components(graph, inside, group) if _is_fair(graph, part, group)), default=None)
    return None if found is None else graph.path(found)


def _is_fair(graph: Graph[State], part: set[int], group: Group) -> bool:
    """In a strongly connected part a run can visit every state and take every step again and again, so each group is satisfied by
    one state in which it cannot move, or by one of its steps that stays inside."""
    able_everywhere: set[str] | None = None
    moves_inside: set[str] = set()
    for number in part:
        able = set()
        for label, target in graph.steps[number]:
            name = group(label)
            if name is None or name == FINITE:
                continue
            able.add(name)
            if target in part:
                moves_inside.add(name)
        able_everywhere = able if able_everywhere is None else able_everywhere & able
    return not (able_everywhere or set()) - moves_inside


def components(graph: Graph[State], inside: set[int], group: Group) -> Iterator[set[int]]:
    """Strongly connected parts of `inside`, without the steps that may be taken only finitely often (Tarjan, with its own stack)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    places: dict[int, int] = {}  # in the stack
    calls: list[tuple[int, Iterator[int]]] = []

    def enter(number: int) -> None:
        index[number] = low[number] = len(index)
        places[number] = len(stack)
        stack.append(number)
        on_stack.add(number)
        calls.append((number, (t for label, t in graph.steps[number] if t in inside and group(label) != FINITE)))

    for root in inside:
        if root not in index:
            enter(root)
        while calls:
            number, targets = calls[-1]
            target = next(targets, None)
            if target is None:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[number])
                if low[number] == index[number]:
                    place = places[number]
                    part = set(stack[place:])
                    del stack[place:]
                    on_stack -= part
                    yield part
            elif target not in index:
                enter(target)
            elif target in on_stack:
                low[number] = min(low[number], index[target])
