"""What an owner asks of an engine, and what it hears from it: the seam between the machines and whatever runs the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lsm.engine.outputs import Job, Output
from lsm.engine.slot_content import SlotJob
from lsm.errors import LsmError
from lsm.values import Counters, ModelFacts, Sampling, SlotInfo

CLASSES = ("weights", "kv", "compute", "encoder", "adapters")  # of device memory
TOGETHER = {"weights": ("weights", "adapters")}  # what leaves with a class: adapters are nothing without the weights they change


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a job.

    bytes: a glance at device memory, by class and place, taken on the engine thread because moves hold its lock.
    sizes: what `measure` found, in bytes by class.
    """

    error: LsmError | None = None
    facts: ModelFacts | None = None
    bytes: Mapping[str, Mapping[str, int]] | None = None
    sizes: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What the engine looked like after a batch, for `/slots` and `/metrics`."""

    slots: tuple[SlotInfo, ...] = ()
    counters: Counters = Counters()


Send = Callable[[str, str, Report], None]  # (machine, event, report), called on the trio thread
Receive = Callable[[list[Output], Activity], None]  # likewise


class EnginePort(Protocol):
    """What an owner asks of an engine.  Every method returns at once; `vocab` and `perception` are read-only, and work after a load."""

    def measure(self) -> None: ...
    def load(self) -> None: ...
    def load_abort(self) -> None: ...
    def free(self) -> None: ...
    def park(self) -> None: ...
    def resume(self) -> None: ...
    def release(self, memory_class: str) -> None: ...
    def report_left(self) -> None: ...
    def report_evicted(self) -> None: ...
    def restore(self, with_encoder: bool) -> None: ...
    def submit(self, job: Job | SlotJob) -> None: ...
    def cancel(self, request_id: str) -> None: ...
    def set_adapters(self, scales: Sequence[float]) -> None: ...
    def fail_all(self, error: LsmError) -> None: ...
    def preparation(self, sampling: Sampling) -> Callable[[], None] | None: ...  # see `Engine.preparation`
    @property
    def vocab(self) -> Any: ...
    @property
    def perception(self) -> Any: ...
