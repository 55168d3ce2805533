"""A device with room for one model, or under a budget for as many as fit.  The memory of the dead comes back later than their locks."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from lsm.errors import DeviceMemoryError
from specs.simulation.judge import Violation
from specs.simulation.kernel import Place


@dataclass(eq=False)
class Device:
    resident: list[Place] = field(default_factory=list)
    budget: int | None = None  # bytes; None: one model at a time
    bytes: dict[Place, dict[str, int]] = field(default_factory=dict)  # by class
    refuse: int = 0  # so many attempts to take memory fail, whoever asks

    def take(self, place: Place, sizes: dict[str, int]) -> None:
        """Raises DeviceMemoryError as long as memory of the dead is there.  Memory of the living is never met by a right program."""
        others = [other for other in self.bytes if other is not place and self.bytes[other]]
        of_the_living = sum(sum(self.bytes[other].values()) for other in others if not other.process.dead)
        for other in self.resident:
            if not other.process.dead and self.budget is None:
                raise Violation(f"{place} takes device memory while {other} has it")
        if self.budget is not None and of_the_living + sum(sizes.values()) > self.budget:
            raise Violation(f"{place} takes {sum(sizes.values())} beside {of_the_living}: the budget is {self.budget}")
        if self.refuse > 0:
            self.refuse -= 1
            raise DeviceMemoryError("no room on the device: something else has it")
        of_the_dead = sum(sum(self.bytes[other].values()) for other in others if other.process.dead)
        if self.resident if self.budget is None else of_the_living + of_the_dead + sum(sizes.values()) > self.budget:
            raise DeviceMemoryError("no room on the device: a dead process still has it")
        if place not in self.resident:
            self.resident.append(place)
        self.bytes[place] = dict(sizes)

    def give(self, place: Place, *classes: str) -> None:
        """Some classes; without any, everything."""
        left = {name: size for name, size in self.bytes.get(place, {}).items() if classes and name not in classes}
        self.bytes[place] = left
        if place in self.resident and (not classes or "weights" in classes):
            self.resident.remove(place)

    async def reclaim(self, place: Place, after_s: float) -> None:
        """The driver frees what a dead process had."""
        await trio.sleep(after_s)
        self.give(place)
