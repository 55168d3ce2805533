"""Exports a table to Promela, for SPIN: one guarded step for each edge, then one for each kernel call that an edge asks for.

The world is written a second time, by hand, in `worlds/token.pml`; it gives a meaning to `ev_*` (may the event come?), `fact_*`,
`at_*` (what the world does along with the event) and `do_*` (the effects).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lsm.machines.table import Edge, Machine


def promela(machine: Machine, kernel: Collection[str], at_once: Collection[str]) -> str:
    """Defines the states, and MACHINE_STEPS(i), the options of a `do` loop for process i.

    `kernel`: effects that are steps of their own, so that a process can die before each of them; what is left to do is a number in
    `todo[i]`, 0 for nothing.  `at_once`: effects that happen with the edge.  All others change nothing in the world.
    """
    tails = _Tails()
    edges = [_edge_step(edge, tails, kernel, at_once) for edge in machine.edges]
    effects = list(_effect_steps(tails))
    return "\n".join(
        [
            f"/* Generated from the table {machine.name!r} by specs/promela.py: do not edit. */",
            *(f"#define {state} {number}" for number, state in enumerate([*_states(machine), "dead"])),
            *(f"#define todo_{e.source}_{e.event} {tails.number(_kernel(e, kernel))}" for e in machine.edges if not e.when),
            *(f"#define next_is_{effect}(k) ({tails.starts_with(effect)})" for effect in kernel),
            "#define MACHINE_STEPS(i) \\",
            " \\\n".join([*edges, *effects]),
            "",
        ]
    )


def promela_calls(machine: Machine, letter: str) -> str:
    """Defines the states, and for each event NAME_EVENT(i): one edge of machine i, whose state is `LETTER_state[i]`, with its effects.

    An event that the table refuses fails an assertion.  The world defines `do_EFFECT(i)`, and each fact as a variable.
    """
    lines = [f"#define {machine.name}_{state} {number}" for number, state in enumerate(_states(machine))]
    for event in machine.events:
        options = [_call(machine, edge, letter) for edge in machine.edges if edge.event == event]
        ignored = [f"{letter}_state[i] == {machine.name}_{state}" for state, name in sorted(machine.ignores) if name == event]
        options += [f"  :: {' || '.join(ignored)} -> skip"] if ignored else []
        lines += [f"inline {machine.name}_{event}(i) {{", "  if", *options, "  :: else -> assert(false)", "  fi", "}"]
    return "\n".join([f"/* Generated from the table {machine.name!r} by specs/promela.py: do not edit. */", *lines, ""])


def promela_messages(machines: Collection[Machine], tells: Mapping[tuple[str, str], str]) -> str:
    """Numbers for all events of machines that tell each other something, MSG_MACHINE_EVENT, and handle(message), which delivers one.

    `tells`: (machine, effect) -> "machine:event"; the world defines post(message), and all other effects.
    """
    events = [f"{machine.name}_{event}" for machine in machines for event in machine.events]
    lines = [f"#define MSG_{event} {number}" for number, event in enumerate(events, start=1)]
    lines += [f"#define do_{effect}(i) post(MSG_{told.replace(':', '_')})" for (_, effect), told in tells.items()]
    deliveries = [f"  :: message == MSG_{event} -> {event}(0)" for event in events]
    return "\n".join([*lines, "inline handle(message) {", "  if", *deliveries, "  fi", "}", ""])


def _call(machine: Machine, edge: Edge, letter: str) -> str:
    state = f"{letter}_state[i]"
    guards = [f"{state} == {machine.name}_{edge.source}", *edge.when]
    actions = [f"{state} = {machine.name}_{edge.target}", *(f"do_{effect}(i)" for effect in edge.do)]
    return f"  :: {' && '.join(guards)} -> {'; '.join(actions)}"


class _Tails:
    """Numbers for every tail of every list of effects; the empty one is 0."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, ...], int] = {(): 0}

    def number(self, effects: tuple[str, ...]) -> int:
        for start in reversed(range(len(effects))):
            self.numbers.setdefault(effects[start:], len(self.numbers))
        return self.numbers[effects]

    def starts_with(self, effect: str) -> str:
        return " || ".join(f"(k) == {number}" for tail, number in self.numbers.items() if tail[:1] == (effect,)) or "false"


def _states(machine: Machine) -> list[str]:
    """The initial one first: SPIN starts everything at 0."""
    return [machine.initial, *(state for state in machine.states if state != machine.initial)]


def _kernel(edge: Edge, kernel: Collection[str]) -> tuple[str, ...]:
    return tuple(effect for effect in edge.do if effect in kernel)


def _edge_step(edge: Edge, tails: _Tails, kernel: Collection[str], at_once: Collection[str]) -> str:
    guards = [f"state[i] == {edge.source}", "!todo[i]", f"ev_{edge.event}(i)"]
    guards += [f"not_{fact[1:]}(i)" if fact[0] == "!" else f"fact_{fact}(i)" for fact in edge.when]
    actions = [f"at_{edge.event}(i)", f"todo[i] = {tails.number(_kernel(edge, kernel))}", f"state[i] = {edge.target}", "settle(i)"]
    actions += [f"do_{effect}(i)" for effect in edge.do if effect in at_once]
    return f"  :: atomic {{ {' && '.join(guards)} -> {'; '.join(actions)} }}"


def _effect_steps(tails: _Tails) -> Iterator[str]:
    for tail, number in tails.numbers.items():
        if tail:
            yield f"  :: atomic {{ todo[i] == {number} -> todo[i] = {tails.numbers[tail[1:]]}; do_{tail[0]}(i) }}"
