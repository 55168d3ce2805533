"""The thread that owns a model, with a real engine."""

from __future__ import annotations

from pathlib import Path

import trio

from lsm.engine.config import EngineConfig
from lsm.engine.engine import Engine
from lsm.runtime.engine_port import Report
from lsm.runtime.engine_thread import EngineThread
from lsm.runtime.executor import Executor


async def test_memory_of_a_model_that_was_freed_does_not_come_back(tiny_llama: Path, owner: int) -> None:
    """Design 4, found by simulation: a wake and an unload cross; "entered" would be refused, and end the server."""
    reports, heard = trio.open_memory_channel[tuple[str, str]](8)

    def send(machine: str, event: str, report: Report) -> None:
        reports.send_nowait((machine, event))

    engine = Engine(EngineConfig(path=tiny_llama, n_ctx=64, threads=1), owner, Executor)
    thread = EngineThread(engine, "a", send, lambda outputs, activity: None)
    thread.load()
    thread.free()
    thread.restore(False)
    assert [await heard.receive() for _ in range(3)] == [("load", "loaded"), ("load", "freed"), ("residency", "enter_failed")]
    await thread.stop()
