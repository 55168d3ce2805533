"""What must hold for a slot and its snapshots, in every state and on every fair run."""

from __future__ import annotations

from lsm.machines.checkpoint import CHECKPOINT
from specs.explore import Predicate
from specs.fairness import FINITE
from specs.worlds.checkpoints import Memory


def _are_of_the_slot(memory: Memory) -> bool:
    """Each snapshot is of as many tokens as it says, and of those that the slot holds, as far as these go."""
    return all(len(content) == n and memory.believed[:n] == content[: len(memory.believed)] for n, content in memory.kept)


INVARIANTS: dict[str, Predicate[Memory]] = {
    "no event is refused": lambda m: not m.wrong.startswith(CHECKPOINT.name),
    "the memory is looked at only when it is on the device": lambda m: "away" not in m.wrong,
    "a prompt resumes where a snapshot was due": lambda m: "too far" not in m.wrong,
    "a snapshot that is of the prompt is not dropped": lambda m: "dropped" not in m.wrong,
    "guesses are made from the slot's text": lambda m: "guess" not in m.wrong,
    "what is in the memory is of the prompt": lambda m: not m.prompt or m.prompt.startswith(m.believed),
    "the memory holds what the slot believes": lambda m: m.believed == m.cells == m.recurrent,
    "a snapshot is of what it says, and of the slot": _are_of_the_slot,
    "snapshots are in order, and no more than allowed": lambda m: (
        [n for n, _ in m.kept] == sorted({n for n, _ in m.kept}) and len(m.kept) <= 2
    ),
    "what is stored is of what it says, with its own snapshots": lambda m: all(
        entry.believed == entry.content and all(entry.believed[:n] == content[: len(entry.believed)] for n, content in entry.kept)
        for entry in m.stash
    ),
    "what is put back or taken is done with within a step": lambda m: m.state == "following",
}

GOALS: dict[str, Predicate[Memory]] = {
    "the slot is idle": lambda m: not m.prompt,
    "a prompt has been decoded": lambda m: bool(m.whole) and not m.prompt,
}

PASSING: dict[str, Predicate[Memory]] = {"a prompt under way": lambda m: bool(m.prompt)}


def group(label: str) -> str | None:
    """Nobody has to come; who cancels, and what fails, does so finitely often, and so does the memory leave; batches go on."""
    kind = label.partition(" ")[0].partition(".")[0]
    return FINITE if kind in ("cancel", "fault", "leave") else kind if kind in ("step", "back") else None
