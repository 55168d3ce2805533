"""docs/machines.md is what the tables say today."""

from __future__ import annotations

from lsm.machines import MACHINES
from specs.diagrams import PAGE, diagram, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == page(), "the tables have changed: run `python -m specs.diagrams`"


def test_every_edge_is_drawn() -> None:
    for machine in MACHINES.values():
        drawn = list(diagram(machine))
        assert len(drawn) == 2 + len(machine.edges)
        assert drawn[1].endswith(machine.initial)
