"""A device with room for one model.  The memory of the dead comes back later than their locks."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from lsm.errors import DeviceMemoryError
from specs.simulation.judge import Violation
from specs.simulation.kernel import Place


@dataclass(eq=False)
class Device:
    resident: list[Place] = field(default_factory=list)
    refuse: int = 0  # so many attempts to take memory fail, whoever asks

    def take(self, place: Place) -> None:
        """Raises DeviceMemoryError as long as memory of the dead is there.  Memory of the living is never met by a right program."""
        for other in self.resident:
            if not other.process.dead:
                raise Violation(f"{place} takes device memory while {other} has it")
        if self.refuse > 0:
            self.refuse -= 1
            raise DeviceMemoryError("no room on the device: something else has it")
        if self.resident:
            raise DeviceMemoryError("no room on the device: a dead process still has it")
        self.resident.append(place)

    def give(self, place: Place) -> None:
        if place in self.resident:
            self.resident.remove(place)

    async def reclaim(self, place: Place, after_s: float) -> None:
        """The driver frees what a dead process had."""
        await trio.sleep(after_s)
        self.give(place)
