"""Planted mistakes: enough of them, listed, and each a story that can be read."""

from __future__ import annotations

import pytest

from specs import mutants
from specs.__main__ import chosen
from specs.explore import Path, reach
from specs.planted import PLANTED
from specs.planted_budget import BUDGET
from specs.planted_checkpoints import CHECKPOINTS
from specs.planted_encoder import ENCODERS
from specs.planted_line import LINE
from specs.planted_owner import OWNER
from specs.planted_slots import SLOTS
from specs.readme import README, renewed
from specs.story import changes
from specs.words import WORDS, words
from specs.worlds import budget, checkpoints, encoder, owner, slots, token
from specs.worlds.budget_state import Scenario as BudgetScenario
from specs.worlds.owner_state import Owner, Scenario
from specs.worlds.slots_state import ANY, Slot
from specs.worlds.slots_state import Scenario as SlotsScenario
from specs.worlds.token_state import Arena, Process


def test_there_are_more_than_forty_and_no_name_is_used_twice() -> None:
    assert len(PLANTED) == len(LINE) + len(BUDGET) + len(OWNER) + len(SLOTS) + len(CHECKPOINTS) + len(ENCODERS) >= 40
    assert all(mistake.steps > 0 for mistake in PLANTED.values())


@pytest.mark.parametrize("requirement", ["S1", "S2", "S3", "S5", "S6", "S7", "S8", "S9", "S10", "S11"])
def test_every_requirement_that_a_world_can_break_has_its_mistakes(requirement: str) -> None:
    """S4 is measured, the router has no machine yet: the page says so."""
    assert any(requirement in mistake.about.split() for mistake in PLANTED.values())


def test_each_is_a_claim_that_can_be_chosen_by_name() -> None:
    names = {claim.name for claim in chosen([], huge=True)}
    assert {f"planted: {name}" for name in PLANTED} <= names


def test_the_list_in_the_page_is_fresh() -> None:
    text = README.read_text()
    assert renewed(text) == text, "the mistakes have changed: run `python -m specs.readme`"


def test_every_step_of_every_world_has_words() -> None:
    small, caches = Scenario(clients=1, inbox_limit=1), BudgetScenario(budget=2, leaves=1, stays=1)
    kinds, short = SlotsScenario(kinds=(ANY,)), checkpoints.Scenario(length=2)
    graphs = {
        "line": reach(token.initial(2), token.World().successors, 10_000),
        "budget": reach(budget.initial(caches), budget.World(caches).successors, 10_000),
        "owner": reach(owner.initial(small), owner.World(small).successors, 10_000),
        "slots": reach(slots.initial(kinds), slots.World(kinds).successors, 10_000),
        "encoder": reach(encoder.Model(), encoder.World(encoder.Scenario()).successors, 10_000),
        "snapshots": reach(checkpoints.initial(short), checkpoints.World(short).successors, 10_000),
    }
    assert set(graphs) == set(WORDS)
    for world, graph in graphs.items():
        labels = {label for steps in graph.steps for label, _ in steps}
        assert all(words(world, label) for label in labels)


def test_words_name_who_acts() -> None:
    assert words("line", "crash.1") == "process 1 is killed with -9"
    assert words("slots", "cancel.2") == "request 2 is cancelled"
    assert words("slots", "room.0") == "an idle slot is cleared to make room"
    assert words("owner", "handle.token.map_failed patient") == "the owner handles the first event of its inbox"
    with pytest.raises(KeyError):
        words("owner", "sneeze")


def test_changes_name_the_part_and_the_field() -> None:
    before = Arena((), (Process(), Process()))
    after = Arena((1,), (Process(), Process(state="doorway", watch=1)))
    assert list(changes(before, after)) == ["line: nothing -> 1", "process 1 state: asleep -> doorway", "process 1 watch: nobody -> 1"]
    assert list(changes(Slot(), Slot(believed=1))) == ["believed: 0 -> 1"]


def test_classes_of_memory_are_named() -> None:
    assert list(changes(Owner(device=1), Owner(device=3, charged=4))) == ["device: compute -> compute, weights", "charged: nothing -> kv"]
    assert list(changes(encoder.Model(), encoder.Model(device=8, wants=("", "text")))) == [
        "device: nothing -> encoder",
        "wants: nothing, nothing -> nothing, text",
    ]


def test_what_lasts_for_ever_is_told_as_that() -> None:
    assert list(mutants.story("demand while asleep does not wake"))[-1] == (
        "so after 3 steps this may last for ever: a load that waits for the token"
    )


def test_a_path_keeps_the_states_on_the_way() -> None:
    graph = reach(0, lambda n: [("one", n + 1), ("two", n + 2)] if n < 4 else [], 10)
    path = graph.path(graph.states.index(3))
    assert (path.labels, path.states, path.state) == (("one", "two"), (0, 1, 3), 3)
    assert isinstance(path, Path)


def test_a_mistake_is_told_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["past", "the", "line"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "whoever slept takes the token past the line (S1), in the world of the line"
    assert lines[1:3] == ["  1. process 0 wants the device  (need.0)", "       process 0 state: asleep -> taking"]
    assert lines[-2] == "so after 2 steps this claim fails: the token is taken from the line"


def test_a_name_that_nobody_planted_is_answered_with_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["no such thing"]) == 1
    assert "there are: the token goes before the memory; " in capsys.readouterr().out


def test_the_hunt_says_what_it_expected() -> None:
    assert mutants.hunt("whoever slept takes the token past the line")[1] == ""


def test_the_hunt_is_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is caught otherwise than it is written down counts as not caught."""
    name = "whoever slept takes the token past the line"
    real = PLANTED[name]
    other = type(real)(real.name, real.about, real.claim, real.steps + 1, real.world, real.find)
    monkeypatch.setitem(PLANTED, name, other)
    assert "in 3 steps, found ('the token is taken from the line', 2)" in mutants.hunt(name)[1]
