"""A model that answers: loaded weights, a context, and the scheduler that fills its batches.

What a request leaves in a slot stays for the next that begins alike.  Removing the end of a sequence is exact for plain attention.  Where a
memory cannot forget a part (recurrent), or a sliding window has moved on too far, the slot goes back to a snapshot (`rewinding`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import perf_counter_ns

from lsm.engine.config import EngineConfig
from lsm.engine.decoder import ContextDecoder
from lsm.engine.encoder import Boundless, Room
from lsm.engine.fitting import context_settings, fit_config
from lsm.engine.gguf_header import read_header
from lsm.engine.making import make_limits, n_ctx_slot
from lsm.engine.model_defaults import sampling_defaults
from lsm.engine.outputs import Job, Output
from lsm.engine.perception import Perception
from lsm.engine.ports import NewInstance
from lsm.engine.samplers import Samplers, check_defaults
from lsm.engine.scheduler import Scheduler
from lsm.engine.slot_content import SlotJob
from lsm.engine.speculation.draft_config import draft_config
from lsm.engine.speculation.draft_context import DraftContext
from lsm.engine.speculation.making import check_target, make_drafters
from lsm.engine.steering import describe, load_adapters, read_control_vectors
from lsm.engine.threads import settle_thread
from lsm.errors import InvalidRequest, LsmError
from lsm.native.adapter import Adapter
from lsm.native.context import Context
from lsm.native.footprint import footprint
from lsm.native.joint_memory import JointMemory
from lsm.native.memory import DeviceMemory, MemoryClass
from lsm.native.model import Model
from lsm.native.projector_check import measure as measure_projector
from lsm.native.vocab import Vocab
from lsm.native.warmup import warm_up
from lsm.values import Counters, ModelFacts, Sampling, SlotInfo

log = logging.getLogger("lsm.engine")

BOUNDLESS = Boundless()


class Engine:
    """One thread calls everything, but for `vocab`, `slots`, `counters` and `interrupt`, which are for any thread.

    `owner` names the model's device memory; a positive number, unique in this process.  `new_instance(machine, subject)` makes the
    instances of the tables `slot`, `request` and `encoder`; subjects are "slot N", the ids of jobs, and "encoder".
    `room`: of the device, for an encoder of images or sound.  `draft_owner`: as `owner`, of the model that drafts, if there is one: its
    memory leaves and comes back with this model's.
    """

    def __init__(
        self,
        config: EngineConfig,
        owner: int,
        new_instance: NewInstance,
        clock_ns: Callable[[], int] = perf_counter_ns,
        room: Room = BOUNDLESS,
        draft_owner: int = 0,
    ) -> None:
        self._wanted = self._config = config
        self._owner = owner
        self._new_instance = new_instance
        self._clock_ns = clock_ns
        self._room = room
        self._perception: Perception | None = None
        self._model: Model | None = None
        self._adapters: tuple[Adapter, ...] = ()
        self._context: Context | None = None
        self._samplers: Samplers | None = None
        self._scheduler: Scheduler | None = None
        self._draft_owner = draft_owner
        self._draft: DraftContext | None = None
        drafts = config.speculating.draft_path is not None
        self.memory = JointMemory(owner, draft_owner) if drafts else DeviceMemory(owner)

    def load(self, progress: Callable[[float], bool]) -> ModelFacts:
        """Read the file into device memory and make the context.  `progress` gets 0.0 to 1.0; the load stops when it returns False.

        Raises, leaving nothing behind:
            ModelFileError: the file is missing, broken, or not for this build.
            DeviceMemoryError: the device has no room.
            LoadCancelled: `progress` said so.
            LsmError: llama.cpp refuses the settings.
        """
        assert self._model is None, "loaded already"
        start_ns = self._clock_ns()
        settle_thread(self._config.computing.cpus, self._config.computing.prio)
        header = read_header(self._wanted.path)  # llama.cpp aborts the process on some broken files
        self._config = fit_config(self._wanted.sized(), header)
        try:
            self._model = Model.load(
                self._config.path, self._owner, progress=progress, loading=self._config.loading, placing=self._config.placing
            )
            self._adapters = load_adapters(self._model, self._config.steering.adapters)
            if (projector := self._config.projector) is not None:
                self._perception = Perception.open(self._config, projector, self._model, self._new_instance, self._room)
            check_target(self._config, self._model)
            self._context = self._new_context(self._model)
            if self._config.speculating.draft_path is not None:
                self._draft = self._open_draft(self._model, self._context, progress)
            self._steer(self._model, self._context)
            if self._config.evict_kv:
                self.memory.prepare("kv")
            if self._config.computing.warmup:
                warm_up(self._model, self._context)
            self._samplers = Samplers(self._model.vocab, self._context.n_ctx_seq)
            self._scheduler = self._new_scheduler(self._model, self._context, self._samplers)
            self.set_adapters(tuple(scale for _, scale in self._config.steering.adapters))
            self._check_defaults(self._samplers, self._model.vocab.n_tokens)
            return self._facts(self._model, self._context, (self._clock_ns() - start_ns) / 1e6)
        except BaseException:
            self.close()
            raise

    def _open_draft(self, model: Model, context: Context, progress: Callable[[float], bool]) -> DraftContext:
        return DraftContext.open(self._config, model, context, self._draft_owner, lambda _: progress(1.0))

    def measure(self) -> dict[str, int]:
        """Bytes by class that `load` will take on the device, found out without taking them.

        Raises:
            ModelFileError: as for `load`.
            LsmError: llama.cpp refuses the settings.
        """
        header = read_header(self._wanted.path)
        self._config = config = fit_config(self._wanted.sized(), header)
        with Model.outline(config.path, loading=config.loading, placing=config.placing) as model, self._new_context(model) as context:
            sizes = {**footprint(context), "adapters": self._measure_adapters(model), "encoder": self._measure_encoder()}
            n_ctx = context.n_ctx
        drafting = self._measure_draft(n_ctx)
        return {name: size + drafting.get(name, 0) for name, size in sizes.items()}

    def _measure_draft(self, n_ctx: int) -> dict[str, int]:
        if self._config.speculating.draft_path is None:
            return {}
        draft = draft_config(self._config, n_ctx)
        read_header(draft.path)
        with (
            Model.outline(draft.path, loading=draft.loading, placing=draft.placing) as model,
            Context(model, model.owner, **context_settings(draft, draft.n_slots)) as context,
        ):
            return footprint(context)

    def _measure_encoder(self) -> int:
        """One that comes just in time finds its own room."""
        projector = self._config.projector
        return measure_projector(projector.path) if projector is not None and not projector.on_demand else 0

    def _measure_adapters(self, model: Model) -> int:
        """At most: an adapter's file is a little larger than its tensors; a control vector has one row of float32 for each layer."""
        steering = self._config.steering
        vector = 4 * model.n_embd * model.n_layer if steering.control_vectors else 0
        return vector + sum(path.stat().st_size for path, _ in steering.adapters)

    def _new_context(self, model: Model) -> Context:
        return Context(model, model.owner, **context_settings(self._config, _n_slots(self._config, model)))

    def _steer(self, model: Model, context: Context) -> None:
        """Before the warm-up: what acts beside the weights changes the graph, and so the compute buffers."""
        steering = self._config.steering
        context.set_adapters([(adapter, scale) for adapter, (_, scale) in zip(self._adapters, steering.adapters, strict=True)])
        if steering.control_vectors:
            directions = read_control_vectors(steering.control_vectors, model.n_embd, model.n_layer)
            context.set_control_vector(directions, *(steering.control_vector_layers or (1, model.n_layer)))

    def _new_scheduler(self, model: Model, context: Context, samplers: Samplers) -> Scheduler:
        drafters = make_drafters(self._config.speculating, self._draft)
        limits = make_limits(self._config, model, context)
        decoder = ContextDecoder(context, self._adapters)
        return Scheduler(
            limits,
            decoder,
            model.vocab,
            samplers.new,
            self._new_instance,
            self._clock_ns,
            embedder=decoder,
            reader=decoder if limits.decoder_start is not None else None,
            encoder=self._perception.encoder if self._perception else None,
            drafters=drafters,
        )

    def _facts(self, model: Model, context: Context, load_ms: float) -> ModelFacts:
        return ModelFacts(
            architecture=model.architecture,
            description=model.description,
            vocab_type=model.vocab.type,
            n_vocab=model.vocab.n_tokens,
            n_ctx=context.n_ctx,
            n_ctx_slot=n_ctx_slot(self._config, model, context),
            n_ctx_train=model.n_ctx_train,
            n_embd=model.n_embd,
            n_params=model.n_params,
            size_bytes=model.size_bytes,
            n_slots=context.n_seq_max,
            bos_token=_token_text(model.vocab, model.vocab.bos),
            eos_token=_token_text(model.vocab, model.vocab.eos),
            chat_template=model.chat_template() or "",
            rerank_template=model.chat_template("rerank") or "",
            pooling=context.pooling,
            n_embd_out=context.n_classes if context.pooling == "rank" else context.n_embd_out,
            generates=context.has_memory,
            load_ms=load_ms,
            adapters=describe(self._adapters, self._config.steering.adapters, model.vocab),
            sampling=sampling_defaults(model.meta),
            has_vision=self._perception is not None and self._perception.projector.has_vision,
            has_audio=self._perception is not None and self._perception.projector.has_audio,
            media_marker=self._perception.projector.marker if self._perception else "",
        )

    @property
    def vocab(self) -> Vocab:
        """For reading by any thread, from `load` to `close`, also while the device memory is away."""
        assert self._model is not None, "not loaded"
        return self._model.vocab

    def preparation(self, sampling: Sampling) -> Callable[[], None] | None:
        """From any thread: what should be done, on another thread than the engine's, before a job with `sampling` is submitted, if there is
        something.  It may take seconds, and raises `InvalidRequest`."""
        samplers = self._samplers
        return None if samplers is None else samplers.preparation(sampling)

    @property
    def perception(self) -> Perception:
        """As `vocab`.  Raises `InvalidRequest`: the model was loaded without a projector."""
        perception = self._perception
        if perception is None:
            raise InvalidRequest("this model takes no images or sound - hint: it was started without --mmproj")
        return perception

    def resident_bytes(self) -> int:
        """What this model has in device memory, all classes together."""
        return sum(self.memory.bytes(name).device for name in MemoryClass)

    @property
    def lost_for(self) -> LsmError | None:
        """Why nothing can be decoded: the weights had to make room for the encoder and did not come back, or its file has changed."""
        return self._perception.encoder.lost_for if self._perception else None

    def woken(self) -> None:
        """All device memory is there again."""
        if self._perception is not None:
            self._perception.encoder.woken()

    # Work: see `Scheduler`, which does it

    def submit(self, job: Job | SlotJob) -> None:
        """Queue it.  Raises nothing: a job that cannot be done is `Failed` among the next outputs."""
        self._loaded().submit(job)

    def set_adapters(self, scales: Sequence[float]) -> None:
        """From the next request on each LoRA adapter acts by its scale.  What others made is not used by later prompts.

        Works while the device memory is away.
        """
        assert len(scales) == len(self._adapters)
        self._loaded().cache.adapting.default = tuple(scales)

    def cancel(self, id: str) -> None:
        """The request is out of the next batch, and its slot free.  Those that have ended are ignored."""
        self._loaded().cancel(id)

    def fail_all(self, error: LsmError) -> None:
        """Every request that has not ended ends with `error`; their slots are cleared.  Works while the device memory is away."""
        self._loaded().fail_all(error)

    def step(self) -> None:
        """Decode at most one batch.  The weights, KV and compute memory must be resident."""
        self._loaded().step()

    def outputs(self) -> list[Output]:
        """All that came out since the last call, in order."""
        return self._loaded().outputs()

    @property
    def has_work(self) -> bool:
        """Whether a request has not ended."""
        return self._scheduler is not None and self._scheduler.has_work

    def slots(self) -> tuple[SlotInfo, ...]:
        return self._scheduler.slots() if self._scheduler else ()

    def counters(self) -> Counters:
        return self._scheduler.counters() if self._scheduler else Counters()

    def interrupt(self) -> None:
        """From any thread, before closing: the step that runs, and each one after, ends early and fails its requests (CPU only)."""
        if self._context is not None:
            self._context.interrupt()
        if self._draft is not None:
            self._draft.interrupt()

    def close(self) -> None:
        """Free everything; also while the memory is released, and before or after a failed load.  Requests get no more outputs."""
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None
        if self._samplers is not None:
            self._samplers.close()
            self._samplers = None
        if self._draft is not None:
            self._draft.close()
            self._draft = None
        if self._context is not None:
            self._context.close()
            self._context = None
        if self._perception is not None:
            self._perception.close()
            self._perception = None
        if self._model is not None:
            self._model.close()
            self._model = None

    def _check_defaults(self, samplers: Samplers, n_tokens: int) -> None:
        """Say now what each request that relies on them would hear; one that brings its own is served."""
        try:
            check_defaults(samplers, self._config.sampling, n_tokens)
        except InvalidRequest as error:
            flag = f"--{(error.field or '').replace('_', '-')}"
            log.error("%s does not fit this model, requests that do not bring their own will be refused: %s", flag, error.message)

    def _loaded(self) -> Scheduler:
        assert self._scheduler is not None, "not loaded"
        return self._scheduler


def _n_slots(config: EngineConfig, model: Model) -> int:
    """A context remembers one text that an encoder has read."""
    return 1 if model.has_encoder and model.has_decoder else config.n_slots


def _token_text(vocab: Vocab, token: int | None) -> str:
    return "" if token is None else vocab.piece(token, special=True).decode("utf-8", "replace")
