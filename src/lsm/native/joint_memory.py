"""The device memory of two owners that leaves and comes back as one: a model and the one that drafts for it."""

from __future__ import annotations

from lsm.native.memory import Bytes, DeviceMemory, MemoryClass

__all__ = ["JointMemory"]


class JointMemory(DeviceMemory):
    """The verbs of `DeviceMemory`.  What one of the two cannot do is undone for the other; errors are those of `DeviceMemory`."""

    def __init__(self, owner: int, other: int) -> None:
        super().__init__(owner)
        self._other = DeviceMemory(other)

    def release(self, *classes: MemoryClass | str) -> None:
        leaving = [name for name in classes if self._other.resident(name)]
        self._other.release(*classes)
        try:
            super().release(*classes)
        except BaseException:
            self._other.restore(*leaving)
            raise

    def restore(self, *classes: MemoryClass | str) -> None:
        entering = [name for name in classes if not super(JointMemory, self).resident(name)]
        super().restore(*classes)
        try:
            self._other.restore(*classes)
        except BaseException:
            super().release(*entering)
            raise

    def resident(self, memory_class: MemoryClass | str) -> bool:
        return super().resident(memory_class) and self._other.resident(memory_class)

    def bytes(self, memory_class: MemoryClass | str) -> Bytes:
        return Bytes(*map(sum, zip(super().bytes(memory_class), self._other.bytes(memory_class), strict=True)))

    def peak_bytes(self, *, restart: bool = False) -> int:
        """At most: the peaks of both."""
        return super().peak_bytes(restart=restart) + self._other.peak_bytes(restart=restart)

    def prepare(self, *classes: MemoryClass | str) -> None:
        super().prepare(*classes)
        self._other.prepare(*classes)

    def wait_for_room(self, *classes: MemoryClass | str) -> None:
        super().wait_for_room(*classes)
        self._other.wait_for_room(*classes)
