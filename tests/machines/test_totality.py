"""Every (state, event) has an edge, is ignored, or is refused; what is refused stands in refused.txt, so that a change is seen.

After a change on purpose: python -m tests.machines.test_totality > tests/machines/refused.txt
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.machines import MACHINES
from lsm.machines.table import Machine

REFUSED = Path(__file__).parent / "refused.txt"


def refused(machine: Machine) -> dict[str, list[str]]:
    """For each event the states that refuse it."""
    known = {(edge.source, edge.event) for edge in machine.edges} | machine.ignores
    return {event: [state for state in machine.states if (state, event) not in known] for event in machine.events}


def listing() -> str:
    lines = ["# machine: event: the states that refuse it (a mistake of the caller)"]
    for machine in MACHINES.values():
        for event, states in refused(machine).items():
            lines.append(f"{machine.name}: {event}: {' '.join(states) or '(none)'}")
    return "\n".join(lines) + "\n"


def test_what_is_refused_is_what_was_agreed() -> None:
    """S2: every wait lists all its exits; what is left out is left out on purpose."""
    assert REFUSED.read_text() == listing(), f"see {Path(__file__).name} for how to accept this"


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES.keys())
def test_what_is_ignored_is_known_elsewhere(machine: Machine) -> None:
    """An event that is ignored wherever it is known would be noise."""
    taken = {edge.event for edge in machine.edges}
    assert {event for _, event in machine.ignores} <= taken


if __name__ == "__main__":
    print(listing(), end="")
