"""Writes docs/machines.md from the tables: `python -m specs.diagrams`.  A test compares the file with what would be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from lsm.machines import MACHINES
from lsm.machines.diagram import diagram, label
from lsm.machines.table import Machine
from specs.planting import CHECKPOINTS_CLAIMS, LINE_CLAIMS, OWNER_CLAIMS, SLOTS_CLAIMS, TIGHT, Claims, encoder_claims_of
from specs.worlds import encoder, owner, slots

WORLDS: dict[str, tuple[Claims, tuple[str, ...]]] = {  # file of the claims -> the claims, and the machines of that world
    "token_claims.py": (LINE_CLAIMS, ("token",)),
    "owner_claims.py": (OWNER_CLAIMS, tuple(owner.TABLES)),
    "slots_claims.py": (SLOTS_CLAIMS, tuple(slots.TABLES)),
    "checkpoints_claims.py": (CHECKPOINTS_CLAIMS, ("checkpoint",)),
    "encoder_claims.py": (encoder_claims_of(TIGHT), tuple(encoder.TABLES)),
}
PAGE = Path(__file__).parent.parent / "docs" / "machines.md"
HEADER = """\
<!-- Generated from src/lsm/machines by `python -m specs.diagrams`: do not edit. -->

# The state machines

Each machine is a table: for a state and an event the next state, under which facts, and what is to be done. The tables are executed as
they stand (`lsm.runtime.executor`), and checked as they stand (`specs/README.md`). In the drawings, `event [facts] / effects`; `!` negates.
An event that a state does not list is ignored there if the table says so, else it is refused: a mistake of the program.
"""


def page() -> str:
    return "\n".join([HEADER, *(section(machine) for machine in MACHINES.values())])


def section(machine: Machine) -> str:
    return "\n".join(
        [
            f"## {machine.name}",
            "",
            "```mermaid",
            *diagram(machine),
            "```",
            "",
            *_words("state", machine.states),
            *_words("fact", machine.facts),
            *_words("effect", machine.effects),
            *_reasons(machine),
            *_ignored(machine),
            *_claims(machine),
        ]
    )


def _words(kind: str, meanings: Mapping[str, str]) -> Iterator[str]:
    if meanings:
        yield from (f"| {kind} | meaning |", "|---|---|")
        yield from (f"| `{name}` | {_cell(meaning)} |" for name, meaning in meanings.items())
        yield ""


def _reasons(machine: Machine) -> Iterator[str]:
    edges = [edge for edge in machine.edges if edge.why]
    if edges:
        yield from ("| edge | why |", "|---|---|")
        yield from (f"| `{edge.source}`, {_cell(label(edge))} | {_cell(edge.why)} |" for edge in edges)
        yield ""


def _ignored(machine: Machine) -> Iterator[str]:
    events = [event for event in machine.events if any(event == ignored for _, ignored in machine.ignores)]
    if events:
        yield from ("| event | ignored in |", "|---|---|")
        for event in events:
            states = [state for state in machine.states if (state, event) in machine.ignores]
            yield f"| `{event}` | {', '.join(f'`{state}`' for state in states)} |"
        yield ""


def _claims(machine: Machine) -> Iterator[str]:
    """What its worlds must keep, checked in every state that they can get into."""
    for file, (claims, machines) in WORLDS.items():
        if machine.name in machines:
            yield from (f"| claimed (`specs/worlds/{file}`) | |", "|---|---|")
            yield from (f"| always | {_cell(name)} |" for name in claims.invariants)
            yield from (f"| from every state it can still come to | {_cell(name)} |" for name in claims.goals)
            yield from (f"| never for ever | {_cell(name)} |" for name in claims.passing)
            yield ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page())
