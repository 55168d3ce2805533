"""The explorer and the fairness check, on worlds small enough to be seen through."""

from __future__ import annotations

import pytest

from specs.explore import TooManyStates, explore, first_broken, first_stranded, reach
from specs.fairness import FINITE, components, fair_lasso

Arrows = dict[str, list[tuple[str, str]]]

#   start -> left -> end      right <-> loop
#     |-----------------------^
FORK: Arrows = {
    "start": [("go", "left"), ("go", "right")],
    "left": [("walk", "end")],
    "right": [("turn", "loop")],
    "loop": [("turn", "right")],
    "end": [("rest", "end")],
}


def steps(arrows: Arrows):  # type: ignore[no-untyped-def]
    return lambda state: arrows[state]


def group(label: str) -> str | None:
    return {"free": None, "gives_up": FINITE}.get(label, label)


def test_every_state_is_visited_once_in_order_of_distance() -> None:
    graph = reach("start", steps(FORK), 10)
    assert graph.states == ["start", "left", "right", "end", "loop"]
    assert graph.path(3).labels == ("go", "walk")
    assert graph.path(0).labels == ()


def test_a_broken_invariant_comes_with_the_shortest_way_there() -> None:
    report = explore("start", steps(FORK), {"never at the end": lambda state: state != "end", "true": lambda state: True})
    assert {name: (path.labels, path.state) for name, path in report.broken.items()} == {"never at the end": (("go", "walk"), "end")}
    assert first_broken("start", steps(FORK), {"never at the end": lambda state: state != "end"}) == (
        "never at the end",
        report.broken["never at the end"],
    )


def test_an_invariant_may_be_broken_from_the_start() -> None:
    found = first_broken("start", steps(FORK), {"elsewhere": lambda state: state != "start"})
    assert found is not None and len(found[1]) == 0


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    arrows = steps({**FORK, "end": [("back", "start")]})
    report = explore("start", arrows, {"true": lambda state: True}, {"the middle": lambda state: state != "start"})
    assert report.problems == {}
    assert first_broken("start", arrows, {"true": lambda state: True}) is None


def test_a_state_without_successors_is_reported() -> None:
    report = explore("start", steps({**FORK, "end": []}), {})
    assert report.stuck is not None and report.stuck.state == "end"
    assert list(report.problems) == ["stuck"]


def test_a_step_that_changes_nothing_is_counted_and_leads_nowhere() -> None:
    report = explore("start", steps(FORK), {})
    assert report.transition_count == 6 and report.graph.loops == 1
    assert report.stuck is not None and report.stuck.state == "end"


def test_the_nearest_state_that_cannot_reach_the_goal_is_reported() -> None:
    report = explore("start", steps(FORK), {}, {"the end": lambda state: state == "end"})
    assert report.stranded["the end"].labels == ("go",)
    assert report.stranded["the end"].state == "right"
    assert first_stranded(report.graph, lambda state: state in ("end", "loop")) is None


def test_a_goal_that_is_nowhere_strands_everybody() -> None:
    report = explore("start", steps(FORK), {}, {"the moon": lambda state: state == "moon"})
    assert len(report.stranded["the moon"]) == 0


def test_a_world_beyond_the_limit_proves_nothing() -> None:
    with pytest.raises(TooManyStates, match="more than 1000 states"):
        reach(0, lambda number: [("next", number + 1)], 1000)
    assert len(reach(0, lambda number: [("next", min(number + 1, 9))], 10).states) == 10


def test_components_are_strongly_connected_and_complete() -> None:
    graph = reach("start", steps(FORK), 10)
    parts = {frozenset(graph.states[n] for n in part) for part in components(graph, set(range(5)), group)}
    assert parts == {frozenset(p) for p in (["start"], ["left"], ["end"], ["right", "loop"])}


def test_components_of_a_figure_of_eight() -> None:
    arrows: Arrows = {"a": [("x", "b"), ("x", "c")], "b": [("x", "a")], "c": [("x", "d")], "d": [("x", "a")], "e": []}
    graph = reach("a", steps(arrows), 10)
    assert sorted(len(part) for part in components(graph, set(range(len(graph.states))), group)) == [4]


def waits(state: str) -> bool:
    return state.startswith("wait")


def lasso(arrows: Arrows) -> str | None:
    found = fair_lasso(reach("start", steps(arrows), 10), waits, group)
    return None if found is None else found.state


def test_standing_still_is_unfair_to_whoever_could_move() -> None:
    assert lasso({"start": [("ask", "wait")], "wait": [("server", "start")]}) is None


def test_standing_still_is_fair_where_nobody_is_obliged_to_move() -> None:
    assert lasso({"start": [("ask", "wait")], "wait": [("free", "start")]}) == "wait"


def test_an_escape_that_is_taken_finitely_often_does_not_help() -> None:
    assert lasso({"start": [("ask", "wait")], "wait": [("gives_up", "start")]}) == "wait"


def test_a_cycle_of_one_group_is_unfair_to_another_that_could_always_move() -> None:
    arrows: Arrows = {
        "start": [("ask", "wait1")],
        "wait1": [("spin", "wait2"), ("server", "start")],
        "wait2": [("spin", "wait1"), ("server", "start")],
    }
    assert lasso(arrows) is None


def test_a_cycle_is_fair_to_one_who_cannot_move_all_the_time() -> None:
    """Weak fairness asks for nothing from a step that is possible again and again only."""
    arrows: Arrows = {"start": [("ask", "wait1")], "wait1": [("spin", "wait2"), ("server", "start")], "wait2": [("spin", "wait1")]}
    assert lasso(arrows) == "wait1"


def test_a_cycle_that_needs_finite_steps_is_no_cycle() -> None:
    arrows: Arrows = {
        "start": [("ask", "wait1")],
        "wait1": [("gives_up", "wait2"), ("server", "start")],
        "wait2": [("spin", "wait1")],
    }
    assert lasso(arrows) is None
