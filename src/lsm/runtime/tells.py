"""What the machines of one owner tell each other: an effect of one is an event of another, and comes through the inbox."""

from __future__ import annotations

from collections.abc import Callable

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


def in_order(*acts: Callable[[], None]) -> Callable[[], None]:
    """One effect made of several."""

    def perform() -> None:
        for act in acts:
            act()

    return perform
