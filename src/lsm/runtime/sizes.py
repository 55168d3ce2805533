"""What a model has on the device, and what it will have: told by the engine, asked by whoever must find room."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lsm.runtime.engine_port import Report


class ModelSizes:
    """`bytes`: by class and place, as of the engine's last report."""

    def __init__(self) -> None:
        self.bytes: Mapping[str, Mapping[str, int]] = {}
        self._foreseen: Mapping[str, int] | None = None
        self._asked = False  # the engine, which has not answered yet

    def keep(self, report: Report) -> None:
        self.bytes = report.bytes or self.bytes
        if report.sizes is not None:
            self._foreseen, self._asked = report.sizes, False

    def on_device(self) -> dict[str, int]:
        """Bytes by class, now."""
        return {name: sizes["device"] for name, sizes in self.bytes.items()}

    def awake(self, encoder_stays: bool) -> dict[str, int]:
        """Bytes by class of a loaded model when it is awake; an encoder that comes just in time finds its own room."""
        classes = {name: sizes for name, sizes in self.bytes.items() if encoder_stays or name != "encoder"}
        return {name: sizes["device"] + sizes["released"] for name, sizes in classes.items()}

    def foreseen(self, measure: Callable[[], None]) -> Mapping[str, int] | None:
        """Bytes by class that a load will take; None until the engine, which is asked to `measure`, has found out."""
        if self._foreseen is None and not self._asked:
            self._asked = True
            measure()
        return self._foreseen

    def forget(self) -> None:
        """The next load may find another file."""
        self._foreseen = None
