"""Draws a table as a mermaid state diagram.  Whatever the drawing does not show does not move the machine."""

from __future__ import annotations

from collections.abc import Iterator

from lsm.machines.table import Edge, Machine


def diagram(machine: Machine) -> Iterator[str]:
    """The lines of a mermaid `stateDiagram-v2`, one for each edge."""
    yield "stateDiagram-v2"
    yield f"    [*] --> {machine.initial}"
    for edge in machine.edges:
        yield f"    {edge.source} --> {edge.target}: {label(edge)}"


def label(edge: Edge) -> str:
    """`event [facts] / effects`."""
    when = f" [{', '.join(edge.when)}]" if edge.when else ""
    do = f" / {', '.join(edge.do)}" if edge.do else ""
    return f"{edge.event}{when}{do}"
