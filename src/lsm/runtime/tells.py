"""Effects that only pass something on: to another machine of the owner, whose event comes through the inbox, or to the engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lsm.runtime.engine_port import EnginePort

TELLS: dict[str, tuple[str, str]] = {
    "device_map": ("residency", "enter"),
    "device_unmap": ("residency", "leave"),
    "tell_cancelled": ("sleep", "device_cancelled"),
    "token_need": ("token", "need"),
    "token_cancel": ("token", "cancel"),
    "residency_loaded": ("residency", "loaded"),
    "residency_failed": ("residency", "load_failed"),
    "residency_freed": ("residency", "freed"),
    "rest": ("sleep", "rest"),
    "tell_granted": ("load", "granted"),
    "tell_source_changed": ("load", "source_changed"),
    "tell_mapped": ("token", "mapped"),
    "tell_map_failed": ("token", "map_failed"),
    "tell_unmapped": ("token", "unmapped"),
}


def engine_effects(engine: EnginePort) -> dict[str, Callable[[], None]]:
    """Those that are one job of the engine and nothing else."""
    return {
        "drain": engine.park,
        "load_abort": engine.load_abort,
        "release_compute": partial(engine.release, "compute"),
        "release_encoder": partial(engine.release, "encoder"),
        "release_weights": partial(engine.release, "weights"),
        "release_kv": partial(engine.release, "kv"),
        "report_left": engine.report_left,
        "report_evicted": engine.report_evicted,
        "restore": partial(engine.restore, False),
        "restore_with_encoder": partial(engine.restore, True),
    }


def in_order(*acts: Callable[[], None]) -> Callable[[], None]:
    """One effect made of several."""

    def perform() -> None:
        for act in acts:
            act()

    return perform
