"""The one thread that owns a model's llama.cpp context.  Nothing else ever calls into it.

Jobs come in through a queue and are done between two batches, in order; so `park` takes effect at the next batch boundary.  While it is
parked, or has nothing to do, the thread sleeps in the queue: an idle model costs no wake-ups.
What happened goes back to trio as reports and outputs; the thread never waits for anybody to take them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from lsm.engine.engine import Engine
from lsm.engine.outputs import Job
from lsm.engine.slot_content import SlotJob
from lsm.errors import DeviceMemoryError, LsmError, ModelFileError, ServerError, SourceChanged, Unavailable
from lsm.runtime.engine_port import CLASSES, TOGETHER, Activity, Receive, Report, Send
from lsm.values import ModelFacts, Sampling

log = logging.getLogger(__name__)

STOP_S = 10.0  # a batch that takes longer is left to the end of the process


class EngineThread:
    def __init__(self, engine: Engine, name: str, send: Send, receive: Receive) -> None:
        self._engine = engine
        self._send = send
        self._receive = receive
        self._trio = trio.lowlevel.current_trio_token()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._loaded = False
        self._running = False
        self._stopped = False
        self._abort = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()

    @property
    def vocab(self) -> Any:
        return self._engine.vocab

    def preparation(self, sampling: Sampling) -> Callable[[], None] | None:
        return self._engine.preparation(sampling)

    @property
    def perception(self) -> Any:
        return self._engine.perception

    # ---- asked from trio ------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """What the model will take on the device; then TOKEN looks again."""
        self._jobs.put(self._measure)

    def load(self) -> None:
        self._abort.clear()
        self._jobs.put(self._load)

    def load_abort(self) -> None:
        self._abort.set()

    def free(self) -> None:
        self._jobs.put(self._free)

    def park(self) -> None:
        self._jobs.put(self._park)

    def resume(self) -> None:
        self._jobs.put(self._resume)

    def release(self, memory_class: str) -> None:
        self._jobs.put(lambda: self._release(memory_class))

    def report_left(self) -> None:
        self._jobs.put(lambda: self._report("residency", "left"))

    def report_evicted(self) -> None:
        self._jobs.put(lambda: self._report("residency", "evicted"))

    def restore(self, with_encoder: bool) -> None:
        self._jobs.put(lambda: self._restore(with_encoder))

    def submit(self, job: Job | SlotJob) -> None:
        self._put_if_loaded(lambda: self._engine.submit(job))

    def set_adapters(self, scales: Sequence[float]) -> None:
        self._put_if_loaded(lambda: self._engine.set_adapters(scales))

    def cancel(self, request_id: str) -> None:
        self._put_if_loaded(lambda: self._engine.cancel(request_id))

    def fail_all(self, error: LsmError) -> None:
        self._put_if_loaded(lambda: self._engine.fail_all(error))

    async def stop(self) -> None:
        """After the batch that runs.  The model should have been freed before."""
        self._abort.set()
        self._jobs.put(self._stop)
        with trio.move_on_after(STOP_S, shield=True):
            await trio.to_thread.run_sync(self._thread.join, abandon_on_cancel=True)

    def _put_if_loaded(self, act: Callable[[], None]) -> None:
        """Requests exist only between a load and the next free; what comes later finds none."""
        self._jobs.put(lambda: act() if self._loaded else None)

    # ---- done on the engine thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            busy = self._running and self._engine.has_work
            try:
                job = self._jobs.get(block=not busy)
            except queue.Empty:
                job = self._step
            try:
                job()
            except Exception as error:  # a fault of ours: this batch's requests end, the engine goes on
                log.exception("The engine failed; its requests end with an error")
                if self._loaded:
                    self._engine.fail_all(error if isinstance(error, LsmError) else ServerError(f"internal error: {error}"))
            self._deliver()

    def _deliver(self) -> None:
        if self._loaded and (outputs := self._engine.outputs()):
            activity = Activity(slots=self._engine.slots(), counters=self._engine.counters())
            self._call(lambda: self._receive(outputs, activity))

    def _step(self) -> None:
        self._engine.step()
        if (reason := self._engine.lost_for) is not None:  # stand still: the owner lets all memory go, and comes again
            self._running = False
            machine, event = ("load", "source_changed") if isinstance(reason, SourceChanged) else ("residency", "weights_lost")
            self._report(machine, event, error=reason)

    def _measure(self) -> None:
        try:
            sizes = self._engine.measure()
        except Exception as error:  # the load meets it as well, and says what it is
            log.debug("Measuring failed: %s", error)
            sizes = {}
        self._report("token", "look", sizes=sizes)

    def _load(self) -> None:
        try:
            facts = self._engine.load(lambda fraction: not self._abort.is_set())
        except LsmError as error:
            self._report("load", "load_failed", error=error)
        except Exception as error:  # whatever it was, the model is not there
            log.exception("Loading failed")
            self._report("load", "load_failed", error=ModelFileError(f"loading failed: {error}"))
        else:
            self._loaded = True
            self._report("load", "loaded", facts=facts)

    def _free(self) -> None:
        self._running = self._loaded = False
        self._engine.close()
        self._report("load", "freed")

    def _park(self) -> None:
        self._running = False
        self._report("token", "drained")

    def _resume(self) -> None:
        self._running = self._engine.lost_for is None  # else it has been told, and the answer is on its way

    def _release(self, memory_class: str) -> None:
        try:
            self._engine.memory.release(*TOGETHER.get(memory_class, (memory_class,)))
        except DeviceMemoryError as error:
            log.warning("%s stays in device memory: %s", memory_class, error)

    def _restore(self, with_encoder: bool) -> None:
        if not self._loaded:  # nothing comes back, and that is no success
            return self._report("residency", "enter_failed", error=Unavailable("the model was unloaded before its memory could come back"))
        try:
            self._engine.memory.restore(*(name for name in CLASSES if name != "encoder" or with_encoder))
        except SourceChanged as error:
            self._report("residency", "source_changed", error=error)
        except LsmError as error:
            self._report("residency", "enter_failed", error=error)
        else:
            self._engine.woken()
            self._report("residency", "entered")

    def _stop(self) -> None:
        self._stopped, self._loaded = True, False
        self._engine.close()

    def _report(
        self,
        machine: str,
        event: str,
        error: LsmError | None = None,
        facts: ModelFacts | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self._deliver()  # what happened before must be heard before
        report = Report(error=error, facts=facts, bytes=self._bytes(), sizes=sizes)
        self._call(lambda: self._send(machine, event, report))

    def _bytes(self) -> dict[str, dict[str, int]]:
        memory = self._engine.memory
        return {name: memory.bytes(name)._asdict() for name in CLASSES}

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self._trio.run_sync_soon(function)
        except trio.RunFinishedError:
            self._stopped = True  # nobody is left to hear it
