"""An engine without a model: it stands where `EngineThread` stands, on virtual time.

It keeps the thread's promises: jobs are done in order, between two batches; requests exist only between a load and the next free; what it
reports is heard in order, some time later, while it goes on.  How long anything takes is up to chance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from lsm.engine.outputs import Cancelled, Ended, Failed, Job, Output, Piece
from lsm.errors import DeviceMemoryError, LoadCancelled, LsmError, ModelFileError, SourceChanged, Unavailable
from lsm.runtime.engine_port import Activity, Receive, Report, Send
from lsm.values import Finish, ModelFacts, Text, Timings
from specs.simulation.chance import Chance
from specs.simulation.device import Device
from specs.simulation.durations import BATCH_MAX_S, LOAD_MAX_S, RELEASE_MAX_S, RESTORE_MAX_S
from specs.simulation.judge import Judge, Violation
from specs.simulation.kernel import Place

SLOTS = 2
SIZES = {"weights": 60, "kv": 20, "compute": 10}
FACTS = ModelFacts(
    architecture="simulated", description="simulated", vocab_type=0, n_vocab=0, n_ctx=4096, n_ctx_slot=2048, n_ctx_train=4096, n_embd=1,
    n_params=1, size_bytes=1, n_slots=SLOTS, bos_token="", eos_token="", chat_template="", load_ms=0.0,
)  # fmt: skip
FINISH = Finish(
    stop_type="limit", stopping_word="", truncated=False, id_slot=0, prompt_tokens=1, completion_tokens=1,
    timings=Timings(cache_n=0, prompt_n=1, prompt_ms=0.0, predicted_n=1, predicted_ms=0.0),
)  # fmt: skip


@dataclass(eq=False, slots=True)
class ModelFile:
    """One for each model; processes come and go, the file stays."""

    broken: bool = False  # a load finds it
    changed: bool = False  # a restore finds it


@dataclass(eq=False)
class Queue:
    """First in, first out, for one reader."""

    _items: deque[Callable[[], Any]] = field(default_factory=deque)
    _news: trio.Event = field(default_factory=trio.Event)

    def put(self, item: Callable[[], Any]) -> None:
        self._items.append(item)
        self._news.set()

    def get_nowait(self) -> Callable[[], Any] | None:
        return self._items.popleft() if self._items else None

    async def get(self) -> Callable[[], Any]:
        while not self._items:
            self._news = trio.Event()
            await self._news.wait()
        return self._items.popleft()


class SimulatedEngine:
    vocab = perception = None

    def __init__(
        self,
        nursery: trio.Nursery,
        chance: Chance,
        device: Device,
        judge: Judge,
        place: Place,
        file: ModelFile,
        send: Send,
        receive: Receive,
    ) -> None:
        self._chance, self._device, self._judge, self._place, self._file = chance, device, judge, place, file
        self._send, self._receive = send, receive
        self._jobs, self._mail = Queue(), Queue()
        self._loaded = self._running = self._abort = False
        self._left: dict[str, int] = {}  # request -> tokens to come
        self._outputs: list[Output] = []
        nursery.start_soon(self._run)
        nursery.start_soon(self._carry_mail)

    # ---- asked by the owner: returns at once --------------------------------------------------------------------------------

    def measure(self) -> None:
        self._jobs.put(partial(self._report, "token", "look", sizes=SIZES))

    def load(self) -> None:
        self._abort = False
        self._jobs.put(self._load)

    def load_abort(self) -> None:
        self._abort = True

    def free(self) -> None:
        self._jobs.put(self._free)

    def park(self) -> None:
        self._jobs.put(self._park)

    def resume(self) -> None:
        self._jobs.put(self._resume)

    def release(self, memory_class: str) -> None:
        self._jobs.put(partial(self._release, memory_class))

    def report_left(self) -> None:
        self._jobs.put(partial(self._report, "residency", "left"))

    def report_evicted(self) -> None:
        self._jobs.put(partial(self._report, "residency", "evicted"))

    def restore(self, with_encoder: bool) -> None:
        self._jobs.put(self._restore)

    def submit(self, job: Job) -> None:
        self._put_if_loaded(partial(self._left.__setitem__, job.id, job.options.max_tokens))

    def set_adapters(self, scales: Sequence[float]) -> None:
        """No adapters here."""

    def cancel(self, request_id: str) -> None:
        self._put_if_loaded(partial(self._cancel, request_id))

    def fail_all(self, error: LsmError) -> None:
        self._put_if_loaded(partial(self._fail_all, error))

    def _put_if_loaded(self, act: Callable[[], None]) -> None:
        self._jobs.put(lambda: act() if self._loaded else None)

    # ---- done by the engine -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            job = self._jobs.get_nowait() if self._running and self._left else await self._jobs.get()
            self._place.process.touch()
            waits = self._batch() if job is None else job()
            if waits is not None:
                await waits
            self._place.process.touch()
            self._deliver()

    async def _carry_mail(self) -> None:
        while True:
            letter = await self._mail.get()
            await trio.sleep(self._chance.choice((0, 0, 0, 0.001)))
            self._place.process.touch()
            letter()

    def _deliver(self) -> None:
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._mail.put(lambda: self._receive(outputs, Activity()))

    def _report(self, machine: str, event: str, **report: Any) -> None:
        self._place.process.touch()
        self._deliver()  # what happened before must be heard before
        has = self._device.bytes.get(self._place, {})
        released = SIZES if self._loaded else {}
        bytes = {
            name: {"device": has.get(name, 0), "released": released.get(name, 0) - has.get(name, 0) * self._loaded, "host": 0, "file": 0}
            for name in SIZES
        }
        self._mail.put(lambda: self._send(machine, event, Report(bytes=bytes, **report)))

    async def _batch(self) -> None:
        if self._place not in self._device.resident:
            raise Violation(f"{self._place} runs a batch without its memory")
        self._judge.may_stay(self._place, "runs a batch")
        await trio.sleep(self._chance.lasting(0.01, BATCH_MAX_S))
        for request in list(self._left)[:SLOTS]:
            self._left[request] -= 1
            self._outputs.append(Piece(request, Text("x", (self._left[request],))))
            if not self._left[request]:
                del self._left[request]
                self._outputs.append(Ended(request, FINISH))

    async def _load(self) -> None:
        try:
            self._take()
        except DeviceMemoryError as error:
            return self._report("load", "load_failed", error=error)
        await trio.sleep(self._chance.lasting(0.1, LOAD_MAX_S))
        if self._abort or self._file.broken:
            self._device.give(self._place)
            cause = LoadCancelled("the load was called off") if self._abort else ModelFileError("the file is broken")
            return self._report("load", "load_failed", error=cause)
        self._loaded = True
        self._report("load", "loaded", facts=FACTS)

    def _free(self) -> None:
        self._running = self._loaded = False
        self._left.clear()
        self._device.give(self._place)
        self._report("load", "freed")

    def _park(self) -> None:
        self._running = False
        self._report("token", "drained")

    def _resume(self) -> None:
        self._running = True

    async def _release(self, memory_class: str) -> None:
        if self._running:
            raise Violation(f"{self._place}: memory leaves under a running engine")
        if memory_class == "encoder":
            return  # these models have none
        await trio.sleep(self._chance.lasting(0.001, RELEASE_MAX_S))
        self._judge.may_stay(self._place, f"releases {memory_class}")
        self._device.give(self._place, memory_class)

    async def _restore(self) -> None:
        if not self._loaded:
            return self._report("residency", "enter_failed", error=Unavailable("the model was unloaded before its memory could come back"))
        if self._file.changed:
            return self._report("residency", "source_changed", error=SourceChanged("the file is another one"))
        try:
            self._take()
        except DeviceMemoryError as error:
            return self._report("residency", "enter_failed", error=error)
        await trio.sleep(self._chance.lasting(0.01, RESTORE_MAX_S))
        self._report("residency", "entered")

    def _take(self) -> None:
        self._judge.holds_token(self._place, "takes device memory")
        self._device.take(self._place, SIZES)

    def _cancel(self, request: str) -> None:
        if self._left.pop(request, None) is not None:
            self._outputs.append(Cancelled(request))

    def _fail_all(self, error: LsmError) -> None:
        self._outputs += [Failed(request, error) for request in self._left]
        self._left.clear()
