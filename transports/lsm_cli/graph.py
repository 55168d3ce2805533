"""`lsm graph`: the tables as mermaid diagrams, to be pasted into any page that draws them."""

from __future__ import annotations

from collections.abc import Iterator

from lsm.errors import NotFound
from lsm.machines import MACHINES
from lsm.machines.diagram import diagram


def graphs(name: str) -> Iterator[str]:
    """One diagram, or all of them if `name` is empty.  Raises NotFound: there is no such machine."""
    if name and name not in MACHINES:
        raise NotFound(f"there is no machine {name!r}; there are: {', '.join(MACHINES)}")
    for machine in [MACHINES[name]] if name else MACHINES.values():
        yield "\n".join([f"%% {machine.name}", *diagram(machine)])
