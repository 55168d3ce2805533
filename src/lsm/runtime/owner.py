"""The owner of one model: one task that moves all its machines, and performs what they ask for.

Everything that happens to a model comes in through one inbox: requests, timers, what the engine thread reports, rings of the bell.  For
each event the facts are sampled, one edge is taken, its effects are performed in order; what comes of them are later events.  Nobody else
moves a machine, and nothing here waits inside an edge, so cheap questions are answered in every state.

`token` and `residency` have their effects on the arena's line and on the engine's memory; the machines tell each other through the inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import trio

from lsm.arena.ledger import Ledger
from lsm.arena.line import Line
from lsm.arena.victims import Ask
from lsm.engine.outputs import Job, Output
from lsm.engine.prompt import message_starts
from lsm.engine.slot_content import SlotDone, SlotJob
from lsm.errors import ArenaError, DeviceMemoryError, LoadCancelled, LsmError, ModelFailed, ModelLoading, Unavailable, WakeFailed
from lsm.machines import LOAD, RESIDENCY, SLEEP, TOKEN
from lsm.runtime.adapters import with_scales
from lsm.runtime.answer import Answer
from lsm.runtime.changes import Changes
from lsm.runtime.demand import Demand
from lsm.runtime.engine_port import Activity, EnginePort, Report
from lsm.runtime.executor import Executor, Observer
from lsm.runtime.inbox import Event, Inbox, Reminders
from lsm.runtime.line_effects import LINE_EFFECTS, LineEffects, LineFailed
from lsm.runtime.room_effects import Budget, RoomEffects, size_text
from lsm.runtime.sizes import ModelSizes
from lsm.runtime.tells import TELLS, engine_effects, in_order
from lsm.values import ModelFacts, Options

log = logging.getLogger(__name__)

MAP_ATTEMPTS = 6  # with the pauses below: about three seconds for the memory of a dead peer to come back
BACKOFF_MIN_S = 0.1
STOP_S = 10.0

BEFORE_THE_LINE = ("asleep", "doorway", "joining")

MakeEngine = Callable[[Callable[[str, str, Report], None], Callable[[list[Output], Activity], None]], EnginePort]


class Owner:
    """`line`, `ledger` and the engine that `make_engine` returns belong to this owner; whoever made them closes them when `run` ends."""

    def __init__(
        self,
        alias: str,
        line: Line,
        ledger: Ledger,
        make_engine: MakeEngine,
        changes: Changes,
        *,
        budget: Budget,
        min_hold_s: float,
        quantum_s: float,
        idle_s: float,
        evict_kv: bool,
        encoder_stays: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.alias = alias
        self.changes = changes
        self.facts: ModelFacts | None = None
        self.activity = Activity()
        self.user_marker = np.zeros(0, np.int32)  # tokens that begin a message of the user in a prompt, once the chat template is known
        self.sizes = ModelSizes()
        self.why = ""  # for people, without our name: the last thing that went wrong, or why the model left the device
        self.counts = {"handoffs": 0, "wakes": 0, "refusals": 0}
        self._line, self._ledger, self._budget = line, ledger, budget
        self._make_engine = make_engine
        self._min_hold_s, self._quantum_s, self._idle_s, self._evict_kv = min_hold_s, quantum_s, idle_s, evict_kv
        self._encoder_stays = encoder_stays
        self._inbox = Inbox()
        self._machines = {m.name: Executor(m, alias, observer) for m in (TOKEN, SLEEP, LOAD, RESIDENCY)}
        self._since = dict.fromkeys(self._machines, 0.0)
        self.demand = Demand(self._post)
        self._map_attempts = 0
        self._times_left = 0
        self._error: LsmError | None = None
        self._stopping = False

    # ---- questions: answered in every state, change nothing ---------------------------------------------------------------

    def state(self, machine: str) -> str:
        return self._machines[machine].state

    def machines(self) -> dict[str, dict[str, Any]]:
        now = trio.current_time()
        return {name: {"state": m.state, "since_s": round(now - self._since[name], 3)} for name, m in self._machines.items()}

    @property
    def running(self) -> int:
        """Requests that the engine works on."""
        return len(self.demand.answers) if self.state("sleep") == "awake" else 0

    @property
    def waiting(self) -> int:
        """Requests that wait for the device, parked ones too."""
        return len(self.demand.answers) - self.running

    @property
    def adapter_scales(self) -> tuple[float, ...]:
        """By which the LoRA adapters act."""
        return tuple(adapter.scale for adapter in self.facts.adapters) if self.facts else ()

    @property
    def vocab(self) -> Any:
        """Raises `ModelLoading` or `ModelFailed` before the model has been loaded."""
        self._check_loaded()
        return self._engine.vocab

    def preparation(self, options: Options) -> Callable[[], None] | None:
        """See `Engine.preparation`."""
        return self._engine.preparation(options.sampling)

    @property
    def perception(self) -> Any:
        """Likewise; also `InvalidRequest`: the model takes no images or sound."""
        self._check_loaded()
        return self._engine.perception

    # ---- what may be asked of a model -------------------------------------------------------------------------------------

    def submit(self, request_id: str, prompt: Any, options: Options, embed: int | None = None, media: tuple[Any, ...] = ()) -> Answer:
        """Start a generation, or an embedding (see `Job`).  prompt: token ids, int32, (n,).  `cancel` it when nobody reads the answer."""
        self._check_loaded()
        answer = self.demand.open_answer(request_id, options.n)
        starts = message_starts(prompt, self.user_marker)
        self._engine.submit(Job(request_id, prompt, options, media, user_starts=starts, embed=embed))
        return answer

    async def do_slot_job(self, job: SlotJob) -> SlotDone:
        """Wake the model if it sleeps, wait until the slot is idle, do it.  Raises `InvalidRequest`, `ServerError`, `Unavailable`."""
        self._check_loaded()
        answer = self.demand.open_answer(job.id)
        self._engine.submit(job)
        try:
            return await answer.result()
        finally:
            self.cancel(answer)

    def cancel(self, answer: Answer) -> None:
        """Before the next batch.  A request that has ended is left alone."""
        if answer.request_id in self.demand.answers:
            self._engine.cancel(answer.request_id)

    def set_adapters(self, scales: Mapping[int, float]) -> None:
        """See `lsm.api.Host.set_adapters`."""
        self._check_loaded()
        assert self.facts is not None
        adapters = with_scales(self.facts.adapters, scales)
        self.facts = replace(self.facts, adapters=adapters)
        self._engine.set_adapters([adapter.scale for adapter in adapters])

    async def wake(self) -> None:
        """Load if need be, and wait until awake.  Raises `Unavailable`."""
        self._check_running()
        if self.state("load") in ("unloaded", "failed"):
            self._post("load", "load")
        await self.demand.wait_until_awake(lambda: self.state("sleep") == "awake")

    async def sleep(self) -> None:
        """Leave the device at the next batch boundary, and wait until that is done."""
        self._check_loaded()
        times_left = self._times_left
        self._post("sleep", "rest")
        await self._until(lambda: self._times_left != times_left or self.state("sleep") in ("asleep", "waking"))

    async def load(self) -> None:
        """Start loading, and wait until the place in the line is taken (or the load has ended already).  Once stopped, it does nothing."""
        if not self._stopping:
            self._post("load", "load")
        await self._until(
            lambda: self._stopping or self.state("token") not in BEFORE_THE_LINE or self.state("load") not in ("unloaded", "queued")
        )

    async def stop(self) -> None:
        """End all requests, unload, give everything back; after `STOP_S` the kernel has to do the rest."""
        self._stopping = True
        stopping = Unavailable("The server is stopping")
        self._engine.fail_all(stopping)
        self.demand.end_wakers(stopping)
        with trio.move_on_after(STOP_S, shield=True) as patience:
            self._post("load", "unload")
            await self._until(lambda: self.state("load") == "unloaded" and self.state("token") == "asleep")
        if patience.cancelled_caught:
            log.warning("%s: did not stop within %.0f s", self.alias, STOP_S)

    # ---- the one task -------------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            self._reminders = Reminders(nursery, self._inbox)
            self._line_effects = LineEffects(self._line, self._inbox, self._reminders, self._min_hold_s, self._quantum_s)
            self.room = RoomEffects(self._ledger, self._line, self._inbox, self._reminders, self._budget, self._needs)
            self._engine = self._make_engine(self._on_report, self._on_outputs)
            self._perform = self._effects()
            self._sample = self._samplers()
            self._since = dict.fromkeys(self._machines, trio.current_time())
            task_status.started()
            try:
                while True:
                    self._deliver(await self._inbox.next())
                    self.changes.happened()
            finally:
                for machine in self._machines.values():
                    machine.close()

    def _deliver(self, event: Event) -> None:
        machine = self._machines[event.machine]
        if isinstance(event.payload, Report):
            self._keep(event.payload)
        before = machine.state
        facts = {name: self._sample[name]() for name in machine.asks(event.event)}
        effects = machine.fire(event.event, **facts)
        if machine.state != before:
            log.debug("%s: %s: %s -> %s (%s)", self.alias, event.machine, before, machine.state, event.event)
            self._since[event.machine] = trio.current_time()
            if event.machine == "token":
                self._line_effects.state_left()
                self.room.state_left()
        try:
            for effect in effects:
                self._perform[effect]()
        except LineFailed as failure:
            self._error = failure.error
            self._inbox.answer(Event("token", "line_failed"))
        self.room.note(bool(self.demand.answers))

    def _keep(self, report: Report) -> None:
        self.sizes.keep(report)
        if report.facts is not None:
            self.facts = report.facts
            self.room.loaded(self.sizes.on_device())
            log.info("%s: loaded in %.1f s", self.alias, report.facts.load_ms / 1e3)
        if report.error is not None:
            self._error = report.error
            self.why = report.error.message
            self._complain(self.why)

    def _samplers(self) -> dict[str, Callable[[], bool]]:
        line = self._line_effects
        return {
            "alone": self.room.alone,
            "budgeted": self.room.budgeted,
            "wanted": lambda: self.room.asked() > Ask.NOTHING if self.room.budgeted() else line.wanted(),
            "rested": line.rested,
            "due": lambda: not self.demand.answers or line.quantum_over(),
            "patient": lambda: self.demand.count > 0 and not self._hopeless() and self._map_attempts + 1 < MAP_ATTEMPTS,
            "demanded": lambda: self.demand.count > 0,
            "hopeless": self._hopeless,
            "evict_kv": lambda: self._evict_kv or self.room.asked() is Ask.ALL,
            "owed": self.room.owed,
            "encoder_stays": lambda: self._encoder_stays,
        }

    def _hopeless(self) -> bool:
        """Whether what went wrong is in the file or the settings: no other turn at the device can mend it."""
        return self._error is not None and not isinstance(self._error, DeviceMemoryError | ArenaError)

    # ---- effects ------------------------------------------------------------------------------------------------------------

    def _effects(self) -> dict[str, Callable[[], None]]:
        """Every effect of the four tables, by name.  A name that is missing here is found by a test, not by a user."""
        line, engine = self._line_effects, self._engine
        return {
            **{name: partial(self._post, *to) for name, to in TELLS.items()},
            **{name: getattr(line, name) for name in LINE_EFFECTS},
            **engine_effects(engine),
            "hold_start": in_order(line.hold_start, partial(self.room.hold_start, self._min_hold_s)),
            "room_look": self.room.room_look,
            "asks_drop": self.room.asks_drop,
            "discharge": lambda: self.room.discharge(self.sizes.on_device()),
            "recount": lambda: self.room.evicted(self.sizes.on_device()),
            "backoff_start": self._backoff_start,
            "tell_ready": self._tell_ready,
            "tell_yielding": self._tell_yielding,
            "tell_left": self._tell_left,
            "token_release": self._token_release,
            "engine_resume": self._engine_resume,
            "idle_start": self._idle_start,
            "idle_stop": partial(self._reminders.stop, "idle"),
            "fail_demand": self._fail_demand,
            "demand_add": self.demand.add,
            "demand_drop": self.demand.drop,
            "engine_load": in_order(self.sizes.forget, engine.load),
            "engine_free": self._engine_free,
        }

    def _needs(self) -> Mapping[str, int] | None:
        return self.sizes.awake(self._encoder_stays) if self.state("load") == "ready" else self.sizes.foreseen(self._engine.measure)

    def _tell_ready(self) -> None:
        self._map_attempts = 0
        self._error = None
        self.why = ""
        self.counts["wakes"] += 1
        self._post("sleep", "device_ready")

    def _tell_yielding(self) -> None:
        self.counts["handoffs"] += 1
        asker = self._ledger.asker()
        self.why = f"left for {asker[0]}: {size_text(asker[1])}" if asker else "gave the device to a model that waited for it"
        self._post("sleep", "device_yielding")

    def _tell_left(self) -> None:
        self._map_attempts = 0
        self._times_left += 1
        self._post("sleep", "device_left")

    def _token_release(self) -> None:
        if self.state("load") not in ("failing", "failed"):  # then what went wrong is still to be told
            self.why = "gave the device back: nobody needs this model now"
        self._post("token", "release")

    def _backoff_start(self) -> None:
        self._reminders.after("backoff", BACKOFF_MIN_S * 2**self._map_attempts, "token", "backoff_over")
        self._map_attempts += 1

    def _engine_resume(self) -> None:
        self._engine.resume()
        self.demand.end_wakers()

    def _idle_start(self) -> None:
        if self._idle_s >= 0:
            self._reminders.after("idle", self._idle_s, "sleep", "idle_over")

    def _fail_demand(self) -> None:
        error = self._wake_error()
        n_requests, is_news = len(self.demand.answers), self.why != self._reason()
        self.why = self._reason()
        if n_requests or is_news:
            self._complain(self.why + (f"; requests that end with 503: {n_requests}" if n_requests else ""))
        self.counts["refusals"] += len(self.demand.answers)
        self._engine.fail_all(error)
        self.demand.end_wakers(error)
        self._post("load", "refused")

    def _wake_error(self) -> Unavailable:
        kind = ModelFailed if self._hopeless() else WakeFailed
        return kind(f"{self.alias}: {self._reason()}")

    def _reason(self) -> str:
        return self._error.message if self._error else "the device could not be had"

    def _complain(self, text: str) -> None:
        """What ends because it was called off is nothing to warn of."""
        is_called_off = self._stopping or isinstance(self._error, LoadCancelled)
        log.log(logging.DEBUG if is_called_off else logging.WARNING, "%s: %s", self.alias, text)

    def _engine_free(self) -> None:
        self._engine.fail_all(self._wake_error() if self._hopeless() else Unavailable(f"{self.alias}: is being unloaded"))
        self._engine.free()

    # ---- what the engine says -----------------------------------------------------------------------------------------------

    def _on_report(self, machine: str, event: str, report: Report) -> None:
        self._inbox.post(Event(machine, event, report))

    def _on_outputs(self, outputs: list[Output], activity: Activity) -> None:
        self.activity = activity
        self.demand.hand_out(outputs)
        self.changes.happened()

    # ---- helpers ------------------------------------------------------------------------------------------------------------

    def _post(self, machine: str, event: str) -> None:
        self._inbox.post(Event(machine, event))

    def _check_running(self) -> None:
        if self._stopping:
            raise Unavailable("The server is stopping")

    def _check_loaded(self) -> None:
        self._check_running()
        match self.state("load"):
            case "ready":
                return
            case "failing" | "failed":
                raise ModelFailed(f"{self.alias}: {self.why}; wake the model to try again (over HTTP: POST /lsm/wake)")
            case _:
                raise ModelLoading()

    async def _until(self, condition: Callable[[], bool]) -> None:
        version = self.changes.version
        while not condition():
            version = await self.changes.after(version)
