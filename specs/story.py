"""A counterexample as a story: each step in words, and what it changes in the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specs.explore import Path
from specs.words import words
from specs.worlds import encoder, owner_state
from specs.worlds.slots_state import UNKNOWN
from specs.worlds.token_state import FIRST, GONE, NOBODY

PARTS = {"processes": "process", "slots": "slot", "requests": "request"}  # fields that hold one tuple for each

CLASSES = {  # fields that are sets of classes of device memory, as bits, by kind of state
    "Owner": {owner_state.COMPUTE: "compute", owner_state.WEIGHTS: "weights", owner_state.KV: "kv"},
    "Model": {encoder.WEIGHTS: "weights", encoder.KV: "kv", encoder.COMPUTE: "compute", encoder.ENCODER: "encoder"},
}
NAMES = {NOBODY: "nobody", FIRST: "nobody ahead", GONE: "gone", UNKNOWN: "unknown"}


def tell(world: str, path: Path[Any]) -> Iterator[str]:
    for number, label in enumerate(path.labels):
        yield f"{number + 1:3}. {words(world, label)}  ({label})"
        yield from (f"       {change}" for change in changes(path.states[number], path.states[number + 1]))


def changes(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Fields that differ, as `where field: old -> new`.  Both are the same kind of NamedTuple."""
    for name in before._fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if name in PARTS:
            for number, (one, other) in enumerate(zip(old, new, strict=True)):
                yield from changes(one, other, f"{PARTS[name]} {number} ")
        elif name in ("device", "charged"):
            bits = CLASSES[type(before).__name__]
            yield f"{where}{name}: {_classes(old, bits)} -> {_classes(new, bits)}"
        else:
            yield f"{where}{name}: {_value(old)} -> {_value(new)}"


def _classes(value: int, bits: Mapping[int, str]) -> str:
    return ", ".join(name for bit, name in bits.items() if value & bit) or "nothing"


def _value(value: Any) -> str:
    if isinstance(value, int) and value in NAMES:
        return NAMES[value]
    if isinstance(value, tuple):
        return ", ".join(str(part) if part != "" else "nothing" for part in value) or "nothing"
    return str(value) if value != "" else "nothing"
