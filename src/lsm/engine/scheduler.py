"""Continuous batching: requests wait for slots, slots share batches, tokens become text.

    submit ──► queue ──► slot: keep the common prefix ──► prompt in batches ──► a token a batch ──► Ended | Failed | Cancelled

One thread calls everything here, except `slots()` and `counters()`, which any thread may read.  What a request or a slot may do next
stands in the tables `lsm.machines.request` and `slot`; they move once for each phase.  A step is:

    assigning   who waits gets a slot; `Cache.keep_prefix` decides what of the slot's cache stays
    embedding   inputs of which embeddings are asked are computed, in batches of their own
    source      the encoder of a model that reads a prompt before it writes has its turn
    media       images and sound that come next in a prompt are encoded, and go into the cache
    slot_jobs   what is asked of idle slots is done: save, load, erase
    here        each busy slot says what it wants decoded (`Slot.work`), and the batch is filled
    speculation guesses what comes after the tokens in it, so that more than one may come out of it
    decoding    the batch goes through the model, in parts if it must
    taking      what came out goes to the requests
    effects     the tables move, and with them slots and requests
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter_ns

from lsm.engine.admission import check_job
from lsm.engine.assigning import Assigner
from lsm.engine.batch import Batch, Next, Work
from lsm.engine.cache import Cache
from lsm.engine.decoding import Decoding
from lsm.engine.effects import Effects
from lsm.engine.embedding import EmbeddingSteps, check_input
from lsm.engine.family import Family
from lsm.engine.limits import Limits
from lsm.engine.media import MediaSteps
from lsm.engine.outputs import Failed, Job, Output
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder, Embedder, Encoder, NewInstance, NewSampler, SourceReader, Vocabulary
from lsm.engine.sampling import of_choice
from lsm.engine.slot import Slot
from lsm.engine.slot_content import SlotJob
from lsm.engine.slot_jobs import SlotJobs
from lsm.engine.source import SourceSteps, check_source
from lsm.engine.speculation.drafter import Drafter
from lsm.engine.speculation.speculation import Speculation
from lsm.engine.taking import Taking
from lsm.errors import LsmError, NotSupported
from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.slot import SLOT
from lsm.values import Counters, SlotInfo


class Scheduler:
    def __init__(
        self,
        limits: Limits,
        decoder: Decoder,
        vocab: Vocabulary,
        new_sampler: NewSampler,
        new_instance: NewInstance,
        clock_ns: Callable[[], int] = perf_counter_ns,
        encoder: Encoder | None = None,
        embedder: Embedder | None = None,
        reader: SourceReader | None = None,
        drafters: Sequence[Drafter] = (),
    ) -> None:
        self._limits = limits
        self._vocab = vocab
        self._new_sampler = new_sampler
        self._new_instance = new_instance
        self.pool = Pool(tuple(self._new_slot(i) for i in range(limits.n_slots)))
        self.cache = Cache(self.pool, decoder, limits)
        self._slot_jobs = SlotJobs(self.pool, decoder, self.cache.stashing, self.cache.rewinding, limits, vocab.n_tokens)
        self._batch = Batch(max(limits.n_batch, limits.n_slots))
        self._effects = Effects(self.pool, self.cache)
        self._assigner = Assigner(self.pool, self.cache, self._effects, limits)
        self._speculation: Speculation | None = None
        if drafters:
            self._speculation = Speculation(drafters, self.cache.rewinding, self.pool.tally, clock_ns, limits.synthetic_rates, limits.eog)
        taking = Taking(self.pool, self.cache, self._effects, vocab, self._speculation)
        self._decoding = Decoding(self.pool, self.cache, self._effects, taking, decoder, clock_ns, self._speculation)
        self._media = MediaSteps(self.pool, self.cache, self._effects, taking, decoder, encoder, clock_ns) if encoder else None
        self._embedding: EmbeddingSteps | None = None
        if embedder and limits.embedding:
            self._embedding = EmbeddingSteps(self.pool, self.cache, self._effects, embedder, limits.embedding, clock_ns)
        self._source = SourceSteps(self.pool, self._effects, reader, clock_ns) if reader else None

    def _new_slot(self, i: int) -> Slot:
        subject = f"slot {i}"
        return Slot(i, self._limits.n_ctx_slot, self._new_instance(SLOT, subject), self._new_instance(CHECKPOINT, subject))

    # What others ask

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.pool.families) or self._slot_jobs.has_work

    def outputs(self) -> list[Output]:
        """All that came out since the last call, in order."""
        drained, self.pool.outputs = self.pool.outputs, []
        return drained

    def slots(self) -> tuple[SlotInfo, ...]:
        return tuple(slot.info(is_speculative=self._speculation is not None) for slot in self.pool.slots)

    def counters(self) -> Counters:
        counted = self.pool.tally.counters(processing=len(self.pool.order), waiting=len(self.pool.queue))
        return replace(counted, **self.cache.kept())

    # What the owner tells

    def submit(self, job: Job | SlotJob) -> None:
        """Queue it.  Raises nothing: a job that cannot be done is `Failed` among the next outputs."""
        if not isinstance(job, Job):
            return self._slot_jobs.add(job)
        assert job.id not in self.pool.families, f"request {job.id!r} has not ended yet"
        try:
            self._check(job)
        except LsmError as error:
            self.pool.outputs.append(Failed(job.id, error))
            return
        family = Family(job, self._new_instance)
        self.pool.add(family)
        try:
            for request in family.members:
                if self._limits.decoder_start is not None:
                    request.read_first(self._limits.decoder_start)
                if request.wants_tokens:
                    request.sampler, request.n_look_back = self._new_sampler(of_choice(job.options.sampling, request.index))
        except LsmError as error:
            self._effects.fail(family.lead, error)

    def _check(self, job: Job) -> None:
        limits, n_vocab = self._limits, self._vocab.n_tokens
        if job.embed is not None:
            check_input(job, limits.embedding, limits.n_ctx_slot, n_vocab)
        elif not limits.generates:
            raise NotSupported("this model makes embeddings and writes nothing: ask it for embeddings")
        else:
            check_job(job, limits, n_vocab)
            if limits.decoder_start is not None:
                check_source(len(job.prompt), limits.n_ubatch)

    def cancel(self, id: str) -> None:
        """The job is out of the next batch and its slots free; what was decoded stays for the next prompt.  Ended ones are ignored."""
        self._slot_jobs.cancel(id)
        if id in self.pool.families:
            self._effects.cancel(id)

    def fail_all(self, error: LsmError) -> None:
        self._slot_jobs.fail_all(error)
        self._effects.fail_all(error)

    def close(self) -> None:
        """Let go of the machines and samplers; requests that have not ended get no output any more."""
        self.pool.close()

    # One step

    def step(self) -> None:
        """Give slots to those who wait, then decode at most one batch; returns at once where there is nothing to do."""
        self._slot_jobs.step()
        self._assigner.assign()
        if self._embedding and self._embedding.step():
            return
        if self._source:
            self._source.step()
        if self._media and not self._media.step():
            return
        self._fill()
        self._decoding.decode(self._batch)

    def _same_adapters(self, slots: list[Slot]) -> list[Slot]:
        """Those whose turn it is: adapters act on a batch as a whole."""
        sets = [slot.request.adapters for slot in slots if slot.request is not None and slot.machine.state != "wait_other"]
        chosen = self.cache.adapting.choose(sets)
        if chosen is None:
            return []
        self.cache.adapting.use(chosen)
        return [slot for slot in slots if slot.request is not None and slot.request.adapters == chosen]

    def _fill(self) -> None:
        writing = self._same_adapters([slot for slot in self.pool.order if slot.request is not None and not slot.request.embeds])
        generating = [slot for slot in writing if slot.request and slot.request.sampled is not None]
        begun = [slot for slot in writing if slot.wants_prompt] if self._limits.cont_batching or not generating else []
        prompts = [work for slot in begun if len((work := self.cache.rewinding.work(slot)).tokens)]
        guessing: list[Work] = []
        if self._speculation and generating:
            n_rows = len(generating) + sum(len(work.tokens) for work in prompts)
            guessing = self._speculation.work(generating, n_rows)
            alone = {work.slot for work in guessing}
            generating = [slot for slot in generating if slot.id not in alone]
        tokens = [Next(slot.id, slot.pos, slot.request.sampled) for slot in generating if slot.request and slot.request.sampled is not None]
        self._batch.fill(tokens, prompts, guessing)
        for share in self._batch.shares[len(tokens) + len(guessing) :]:
            slot, request = self.pool.slots[share.slot], self.pool.request(share)
            if slot.machine.state in ("started", "processing_prompt"):
                self.cache.rewinding.before_batch(slot, share.stop - share.start)
                self._effects.move(slot, "batch", whole=slot.n + share.stop - share.start == len(request.prompt))
