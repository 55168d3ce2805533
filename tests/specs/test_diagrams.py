"""docs/machines.md is what the tables say today."""

from __future__ import annotations

from lsm.machines import MACHINES
from specs.diagrams import PAGE, WORLDS, diagram, page, section


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "the tables have changed: run `python -m specs.diagrams`"


def test_every_edge_is_drawn() -> None:
    for machine in MACHINES.values():
        drawn = list(diagram(machine))
        assert len(drawn) == 2 + len(machine.edges)
        assert drawn[1].endswith(machine.initial)


def test_every_machine_has_claims_in_some_world() -> None:
    """A machine that joins brings its world."""
    assert {machine for _, machines in WORLDS.values() for machine in machines} == set(MACHINES)
    for claims, machines in WORLDS.values():
        names = [*claims.invariants, *claims.goals, *claims.passing]
        assert all(f"| {name} |" in section(MACHINES[machine]) for machine in machines for name in names)
