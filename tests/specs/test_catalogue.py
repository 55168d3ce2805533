"""What is said to stand for a property, a requirement or a known fault does exist; the page has the numbers that are counted."""

from __future__ import annotations

import ast

import pytest

from specs import counts
from specs.catalogue import FAULTS, PROPERTIES, REQUIREMENTS
from specs.claims import CLAIMS
from specs.planted import PLANTED
from specs.readme import README, TESTS, named_tests

CATALOGUE = PROPERTIES | REQUIREMENTS | FAULTS
NOT_MODELLED = "not modelled: "
CLAIM_NAMES = {claim.name for claim in CLAIMS}


def exists(evidence: str) -> bool:
    if "::" in evidence:
        file, name = evidence.split("::")
        nodes = ast.walk(ast.parse((TESTS / file).read_text())) if (TESTS / file).is_file() else ()
        return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in nodes)
    return evidence in PLANTED or evidence in CLAIM_NAMES or evidence.startswith(NOT_MODELLED)


@pytest.mark.parametrize("name", CATALOGUE)
def test_everything_that_is_named_exists(name: str) -> None:
    assert [evidence for evidence in CATALOGUE[name][1] if not exists(evidence)] == []


@pytest.mark.parametrize("name", CATALOGUE)
def test_something_stands_for_each_or_it_is_said_why_not(name: str) -> None:
    planted = [mistake for mistake in PLANTED.values() if name in mistake.about.split()]
    assert CATALOGUE[name][1] or planted or named_tests().get(name)


@pytest.mark.parametrize("name", PROPERTIES)
def test_each_property_has_a_claim_a_planted_mistake_or_a_test(name: str) -> None:
    assert any(not evidence.startswith(NOT_MODELLED) for evidence in PROPERTIES[name][1])


def test_the_catalogue_is_whole() -> None:
    assert list(PROPERTIES) == [f"P{n}" for n in range(1, 21)]
    assert list(REQUIREMENTS) == [f"S{n}" for n in range(1, 13)]


def test_what_does_not_exist_is_noticed() -> None:
    assert not exists("no such mistake") and not exists("specs/test_catalogue.py::test_nothing") and not exists("nowhere.py::test_it")
    assert exists("specs/test_catalogue.py::test_what_does_not_exist_is_noticed")


def test_the_numbers_in_the_page_are_those_that_are_counted() -> None:
    counted = [*counts.LINE.values(), counts.SNAPSHOTS, counts.STORED]
    counted += [numbers for _, _, numbers in (*counts.ENCODERS.values(), *counts.SLOTS.values(), *counts.OWNERS.values())]
    counted += [numbers for _, numbers in counts.BUDGETS.values()]
    page = README.read_text()
    missing = [f"{states:,} states, {transitions:,} transitions" for states, transitions in counted]
    assert [numbers for numbers in missing if numbers not in page] == []
