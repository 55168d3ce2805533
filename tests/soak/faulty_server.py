"""`lsm-server` with one mistake planted in it: `python -m tests.soak.faulty_server MISTAKE flags...`"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from lsm_cli.server import run

import lsm.runtime.owner
from lsm.arena.line import Line
from lsm.machines.table import Edge
from lsm.runtime.engine_thread import EngineThread
from lsm.runtime.owner import Owner


def keep_weights() -> None:
    """Who yields to a waiter leaves the weights in memory; who is told to sleep does not, since so the soak measures."""
    release, yielding = EngineThread._release, Owner._tell_yielding
    kept: list[bool] = []

    def faulty(self: EngineThread, memory_class: str) -> None:
        if memory_class == "weights" and kept:
            kept.clear()
        else:
            release(self, memory_class)

    def faulty_yielding(self: Owner) -> None:
        kept.append(True)
        yielding(self)

    EngineThread._release = faulty  # type: ignore[method-assign]
    Owner._tell_yielding = faulty_yielding  # type: ignore[method-assign]


def lose_a_cell() -> None:
    """After a wake, one token of the running sequence is missing in the KV cache."""
    restore = EngineThread._restore

    def faulty(self: EngineThread, with_encoder: bool) -> None:
        restore(self, with_encoder)
        context = self._engine._context
        assert context is not None
        context.seq_rm(0, 1, 2)

    EngineThread._restore = faulty  # type: ignore[method-assign]


def forget_demand() -> None:
    """Who came while the model fell asleep is not thought of afterwards (S2)."""

    def faulty(edge: Edge) -> Edge:
        forgets = (edge.source, edge.event, edge.when) == ("falling_asleep", "device_left", ("demanded",))
        return replace(edge, target="asleep", do=()) if forgets else edge

    sleep = lsm.runtime.owner.SLEEP
    lsm.runtime.owner.SLEEP = replace(sleep, edges=tuple(map(faulty, sleep.edges)))


def push_in() -> None:
    """Never looks whether somebody is ahead in the line."""
    Line.ahead = lambda self: -1  # type: ignore[method-assign]


if __name__ == "__main__":
    {mistake.__name__: mistake for mistake in (keep_weights, lose_a_cell, forget_demand, push_in)}[sys.argv[1]]()
    sys.exit(run(sys.argv[2:], os.environ))
