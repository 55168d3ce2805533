"""An engine without a model, on virtual time: each act takes as long as the script says, and the device refuses a second resident.

It stands where `EngineThread` stands, follows the same port, and keeps the same promise: jobs are done in order, between two batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from lsm.engine.outputs import Cancelled, Ended, Failed, Job, Piece
from lsm.errors import DeviceMemoryError, LoadCancelled, LsmError, ModelFileError, SourceChanged
from lsm.runtime.engine_port import Activity, Receive, Report, Send
from lsm.values import Finish, ModelFacts, Text, Timings

FACTS = ModelFacts(
    architecture="scripted", description="scripted", vocab_type=0, n_vocab=0, n_ctx=4096, n_ctx_slot=4096, n_ctx_train=4096, n_embd=1,
    n_params=1, size_bytes=1, n_slots=4, bos_token="", eos_token="", chat_template="", load_ms=0.0,
)  # fmt: skip


@dataclass
class Device:
    """Memory for one model; with a capacity, for as many as fit.  `log` has (time, who, what), in order."""

    resident: set[str] = field(default_factory=set)
    capacity: int | None = None
    bytes: dict[str, dict[str, int]] = field(default_factory=dict)  # who -> class -> on the device now
    peak: int = 0
    log: list[tuple[float, str, str]] = field(default_factory=list)
    refuse: int = 0  # so many attempts to take memory fail, whoever asks

    def take(self, who: str) -> None:
        if self.refuse > 0:
            self.refuse -= 1
            raise DeviceMemoryError("no room on the device")
        self.resident.add(who)
        assert self.capacity or len(self.resident) == 1, f"two models are resident: {self.resident}"

    def put(self, who: str, sizes: dict[str, int]) -> None:
        self.bytes[who] = sizes
        total = sum(sum(has.values()) for has in self.bytes.values())
        assert self.capacity is None or total <= self.capacity, f"more than the device has: {self.bytes}"
        self.peak = max(self.peak, total)

    def note(self, who: str, what: str) -> None:
        self.log.append((trio.current_time(), who, what))

    def times(self, who: str, what: str) -> list[float]:
        return [t for t, w, happened in self.log if (w, happened) == (who, what)]


@dataclass
class Script:
    measure_s: float = 0.0
    load_s: float = 1.0
    restore_s: float = 0.3
    release_s: float = 0.01
    batch_s: float = 0.01
    broken_file: bool = False  # the next load finds it
    full_disk: bool = False  # no copy of the KV cache can be made
    changed_file: bool = False  # the next restore finds it
    sizes: dict[str, int] = field(default_factory=lambda: {"weights": 60, "kv": 20, "compute": 10})


class ScriptedEngine:
    def __init__(self, nursery: trio.Nursery, device: Device, name: str, script: Script, send: Send, receive: Receive) -> None:
        self.device, self.name, self.script = device, name, script
        self._send, self._receive = send, receive
        self._jobs: deque[Any] = deque()
        self._news = trio.Event()
        self._running = self._aborted = self._loaded = False
        self._left: dict[str, int] = {}  # request -> tokens to come
        self._outputs: list[Any] = []
        nursery.start_soon(self._run)

    vocab = perception = None

    def _put(self, act: str, *arguments: Any) -> None:
        self._jobs.append((act, arguments))
        self._news.set()

    def measure(self) -> None:
        self._put("measure")

    def load(self) -> None:
        self._aborted = False
        self._put("load")

    def load_abort(self) -> None:
        self._aborted = True

    def free(self) -> None:
        self._put("free")

    def park(self) -> None:
        self._put("park")

    def resume(self) -> None:
        self._put("resume")

    def release(self, memory_class: str) -> None:
        self._put("release", memory_class)

    def report_left(self) -> None:
        self._put("report_left")

    def report_evicted(self) -> None:
        self._put("report_evicted")

    def restore(self, with_encoder: bool) -> None:
        self._put("restore", with_encoder)

    def submit(self, job: Job) -> None:
        self._put("submit", job)

    def set_adapters(self, scales: Sequence[float]) -> None:
        self._put("set_adapters", scales)

    def cancel(self, request_id: str) -> None:
        self._put("cancel", request_id)

    def fail_all(self, error: LsmError) -> None:
        self._put("fail_all", error)

    async def _run(self) -> None:
        while True:
            if self._jobs:
                act, arguments = self._jobs.popleft()
                await getattr(self, f"_do_{act}")(*arguments)
            elif self._running and self._left:
                await self._batch()
            else:
                self._news = trio.Event()
                await self._news.wait()
            self._deliver()

    async def _batch(self) -> None:
        assert self.name in self.device.resident, "a batch without memory"
        await trio.sleep(self.script.batch_s)
        for request_id, left in list(self._left.items()):
            self._outputs.append(Piece(request_id, Text("x", (left,))))
            self._left[request_id] = left - 1
            if left == 1:
                del self._left[request_id]
                self._outputs.append(Ended(request_id, finish()))
                self.device.note(self.name, f"served {request_id}")

    def _deliver(self) -> None:
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._receive(outputs, Activity())

    def _report(self, machine: str, event: str, **rest: Any) -> None:
        self._deliver()
        on_device = self.device.bytes.get(self.name, {})
        bytes = {name: {"device": on_device.get(name, 0), "released": 0, "host": 0, "file": 0} for name in self.script.sizes}
        for name, size in self.script.sizes.items() if self._loaded else ():
            bytes[name]["released"] = size - bytes[name]["device"]
        self._send(machine, event, Report(bytes=bytes, **rest))

    async def _do_measure(self) -> None:
        await trio.sleep(self.script.measure_s)
        self.device.note(self.name, "measured")
        self._report("token", "look", sizes=dict(self.script.sizes))

    async def _do_report_evicted(self) -> None:
        self._report("residency", "evicted")

    async def _do_load(self) -> None:
        self.device.note(self.name, "load")
        try:
            self.device.take(self.name)
        except DeviceMemoryError as error:
            return self._report("load", "load_failed", error=error)
        await trio.sleep(self.script.load_s)
        broken, self.script.broken_file = self.script.broken_file, False
        if self._aborted or broken:
            self.device.resident.discard(self.name)
            error = LoadCancelled("the load was cancelled") if self._aborted else ModelFileError("the file is broken")
            return self._report("load", "load_failed", error=error)
        self._loaded = True
        self.device.put(self.name, dict(self.script.sizes))
        self.device.note(self.name, "loaded")
        self._report("load", "loaded", facts=FACTS)

    async def _do_free(self) -> None:
        self._running = self._loaded = False
        self.device.resident.discard(self.name)
        self.device.put(self.name, {})
        self._report("load", "freed")

    async def _do_park(self) -> None:
        self._running = False
        self._report("token", "drained")

    async def _do_resume(self) -> None:
        self._running = True

    async def _do_release(self, memory_class: str) -> None:
        assert not self._running, "memory leaves under a running engine"
        await trio.sleep(self.script.release_s)
        if memory_class == "kv" and self.script.full_disk:
            return
        self.device.put(self.name, {name: size for name, size in self.device.bytes.get(self.name, {}).items() if name != memory_class})
        if memory_class == "weights":
            self.device.resident.discard(self.name)
            self.device.note(self.name, "released")

    async def _do_report_left(self) -> None:
        self._report("residency", "left")

    async def _do_restore(self, with_encoder: bool) -> None:
        self.device.note(self.name, "restore with encoder" if with_encoder else "restore")
        if self.script.changed_file:
            return self._report("residency", "source_changed", error=SourceChanged("the file is another one"))
        try:
            self.device.take(self.name)
        except DeviceMemoryError as error:
            return self._report("residency", "enter_failed", error=error)
        self.device.put(self.name, dict(self.script.sizes))
        await trio.sleep(self.script.restore_s)
        self.device.note(self.name, "restored")
        self._report("residency", "entered")

    async def _do_submit(self, job: Job) -> None:
        self._left[job.id] = job.options.max_tokens

    async def _do_set_adapters(self, scales: Sequence[float]) -> None:
        """No adapters here."""

    async def _do_cancel(self, request_id: str) -> None:
        if self._left.pop(request_id, None) is not None:
            self._outputs.append(Cancelled(request_id))

    async def _do_fail_all(self, error: LsmError) -> None:
        self._outputs += [Failed(request_id, error) for request_id in self._left]
        self._left.clear()


def finish() -> Finish:
    timings = Timings(cache_n=0, prompt_n=1, prompt_ms=0.0, predicted_n=1, predicted_ms=0.0)
    return Finish(stop_type="limit", stopping_word="", truncated=False, id_slot=0, timings=timings, prompt_tokens=1, completion_tokens=1)
