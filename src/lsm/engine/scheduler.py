"""Continuous batching: requests wait for slots, slots share batches, tokens become text.

    submit ──► queue ──► slot: keep the common prefix ──► prompt in batches ──► a token a batch ──► Ended | Failed | Cancelled

One thread calls everything here, except `slots()` and `counters()`, which any thread may read.  What a request or a slot may do next
stands in the tables `lsm.machines.request` and `slot`; they move once for each phase, and their effects are methods of this class.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns

from lsm.engine.admission import check_job
from lsm.engine.batch import Batch, Share
from lsm.engine.outputs import Cancelled, Ended, Failed, Job, Output, Piece
from lsm.engine.ports import Decoder, NewInstance, NewSampler, Vocabulary
from lsm.engine.prefix import choose_slot, common_prefix, reusable_prefix
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.engine.tally import Tally
from lsm.errors import DecodeFailed, LsmError
from lsm.machines.request import REQUEST
from lsm.machines.slot import SLOT
from lsm.values import Counters, SlotInfo, StopType

NO_CELL = 1  # llama_decode: no room in the KV cache; nothing was changed
REASONS = {-1: "Invalid input batch.", 2: "The computation was aborted."}


@dataclass(frozen=True, slots=True)
class Limits:
    n_slots: int
    n_ctx_slot: int  # prompt and answer of one slot together
    n_batch: int  # most tokens in one step
    n_swa: int  # tokens that sliding layers look back; 0: none slide
    shares_cells: bool  # one KV cache for all slots: an idle one can be cleared to make room
    similarity_min: float = 0.1


class Scheduler:
    def __init__(
        self,
        limits: Limits,
        decoder: Decoder,
        vocab: Vocabulary,
        new_sampler: NewSampler,
        new_instance: NewInstance,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._limits = limits
        self._decoder = decoder
        self._vocab = vocab
        self._new_sampler = new_sampler
        self._new_instance = new_instance
        self._clock_ns = clock_ns
        self._slots = tuple(Slot(i, limits.n_ctx_slot, new_instance(SLOT, f"slot {i}")) for i in range(limits.n_slots))
        self._batch = Batch(max(limits.n_batch, limits.n_slots))
        self._requests: dict[str, Request] = {}  # those that have not ended
        self._queue: deque[Request] = deque()  # of these, those without a slot
        self._order: list[Slot] = []  # busy slots, first come first
        self._outputs: list[Output] = []
        self._tally = Tally()
        self._uses = 0
        self._effects: dict[str, Callable[[Request, Slot | None], None]] = {
            "slot_finish": partial(self._free_slot, event="finish"),
            "slot_fail": partial(self._free_slot, event="fail"),
            "report_done": self._report_done,
            "report_failed": self._report_failed,
            "report_cancelled": self._report_cancelled,
        }

    # What others ask

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._requests)

    def outputs(self) -> list[Output]:
        """All that came out since the last call, in order."""
        drained, self._outputs = self._outputs, []
        return drained

    def slots(self) -> tuple[SlotInfo, ...]:
        return tuple(slot.info() for slot in self._slots)

    def counters(self) -> Counters:
        n_busy = len(self._order)
        return self._tally.counters(processing=n_busy, waiting=len(self._queue))

    # What the owner tells

    def submit(self, job: Job) -> None:
        """Queue it.  Raises nothing: a job that cannot be done is `Failed` among the next outputs."""
        assert job.id not in self._requests, f"request {job.id!r} has not ended yet"
        request = Request(job, self._new_instance(REQUEST, job.id))
        self._requests[job.id] = request
        self._queue.append(request)
        try:
            check_job(job, self._limits.n_slots, self._limits.n_ctx_slot, self._vocab.n_tokens)
            if request.wants_tokens:
                request.sampler, request.n_look_back = self._new_sampler(job.options.sampling)
        except LsmError as error:
            self._fail(request, error)

    def cancel(self, id: str) -> None:
        """The request is out of the next batch and its slot free; what was decoded stays for the next prompt.  Ended ones are ignored."""
        if id in self._requests:
            self._advance(self._requests[id], "cancel")

    def fail_all(self, error: LsmError) -> None:
        for request in list(self._requests.values()):
            self._fail(request, error)

    def close(self) -> None:
        """Let go of the machines and samplers; requests that have not ended get no output any more."""
        for request in self._requests.values():
            request.close()
        self._requests.clear()
        self._queue.clear()
        for slot in self._slots:
            slot.machine.close()

    # One step

    def step(self) -> None:
        """Give slots to those who wait, then decode at most one batch; returns at once where there is nothing to do."""
        self._assign()
        generating = [slot.work() for slot in self._order if slot.request and slot.request.sampled is not None]
        prompts = [slot.work() for slot in self._order if slot.request and slot.request.sampled is None]
        self._batch.fill(generating, prompts)
        for share in self._batch.shares:
            self._announce(share)
        self._decode_batch()

    def _assign(self) -> None:
        for request in list(self._queue):
            idle = [slot.candidate() for slot in self._slots if slot.request is None]
            if not idle:
                return
            options = request.options
            similarity_min = self._limits.similarity_min if options.cache_prompt else 0.0
            chosen = choose_slot(request.prompt, idle, options.id_slot, similarity_min)
            if chosen is None:
                continue  # waits for the slot it asked for; others may pass
            self._queue.remove(request)
            self._start(request, self._slots[chosen])

    def _start(self, request: Request, slot: Slot) -> None:
        request.slot_id = slot.id
        slot.request = request
        self._order.append(slot)
        self._advance(request, "start")
        for effect in slot.machine.fire("assign"):
            assert effect == "prefix_keep", effect
            self._keep_prefix(request, slot)
        if request.sampler is not None and request.n_look_back:
            request.sampler.accept_prompt(request.prompt[-request.n_look_back :].tolist())

    def _keep_prefix(self, request: Request, slot: Slot) -> None:
        n = 0
        if request.options.cache_prompt and slot.n:
            n_common = common_prefix(slot.tokens, request.prompt)
            n = reusable_prefix(n_common, len(request.prompt), self._decoder.seq_pos_min(slot.id), self._limits.n_swa)
        if n < slot.n and not (n and self._decoder.seq_rm(slot.id, n, -1)):
            self._clear(slot)  # nothing in common, or a memory that cannot forget a part: correct beats fast
        slot.keep(min(n, slot.n))
        request.cache_n = slot.n
        self._tally.prompt_tokens_cached += slot.n

    def _announce(self, share: Share) -> None:
        slot = self._slots[share.slot]
        request = slot.request
        assert request is not None
        if slot.machine.state in ("started", "processing_prompt"):
            slot.machine.fire("batch", whole=slot.n + share.stop - share.start == len(request.prompt))

    def _decode_batch(self) -> None:
        """Decode the batch, in smaller and smaller parts while the KV cache has no room for a larger one.

        Where not even one token finds room, its request fails; the others come again in the next batch, into the room it leaves.
        """
        start, size = 0, self._batch.n
        while start < self._batch.n:
            stop = min(start + size, self._batch.n)
            code = self._decode(start, stop)
            if code == 0:
                start = stop
            elif code == NO_CELL and self._clear_idle():
                continue
            elif code == NO_CELL and stop - start > 1:
                size = (stop - start) // 2
            elif code == NO_CELL:
                return self._fail_shares(self._batch.shares_within(start, stop), DecodeFailed("Context size has been exceeded."))
            else:
                return

    def _decode(self, start: int, stop: int) -> int:
        """llama_decode's code.  Any but 0 and NO_CELL has failed the requests in the batch: what is in their sequences is unknown."""
        shares = self._batch.shares_within(start, stop)
        samplers = [sampler for share in shares if share.output and (sampler := self._request(share).sampler) is not None]
        t_start_ns = self._clock_ns()
        try:
            code, sampled = self._decoder.decode(self._batch, start, stop, samplers)
        except LsmError as error:
            self._fail_shares(self._batch.shares, error if isinstance(error, DecodeFailed) else DecodeFailed(error.message))
            return -1
        elapsed_ns = self._clock_ns() - t_start_ns
        if code == 0:
            self._tally.decoded(n_slots=len(shares))
            tokens = iter(sampled)
            for share in shares:
                self._take(share, elapsed_ns, next(tokens) if share.output else None)
        elif code != NO_CELL:
            self._fail_shares(self._batch.shares, DecodeFailed(REASONS.get(code, f"Compute error (llama_decode: {code}).")))
        return code

    def _request(self, share: Share) -> Request:
        request = self._slots[share.slot].request
        assert request is not None, f"slot {share.slot} has rows in the batch, but no request"
        return request

    def _take(self, share: Share, elapsed_ns: int, sampled: int | None) -> None:
        """What one slot's part of a decoded batch means for its request."""
        slot, request = self._slots[share.slot], self._request(share)
        n_rows = share.stop - share.start
        slot.append(self._batch.tokens[share.start : share.stop])
        if request.sampled is None:
            request.prompt_n += n_rows
            request.prompt_ns += elapsed_ns
            self._tally.prompt(n_rows, elapsed_ns)
        else:
            request.predicted_ns += elapsed_ns
            self._tally.predicted_ns += elapsed_ns
        self._tally.tokens_max = max(self._tally.tokens_max, slot.n)
        if sampled is not None:
            self._take_token(request, slot, int(sampled))
        elif slot.n == len(request.prompt) and not request.wants_tokens:
            self._finish(request, slot, "limit", truncated=False)

    def _take_token(self, request: Request, slot: Slot, token: int) -> None:
        if request.sampled is None:
            slot.machine.fire("sampled")
            self._advance(request, "first_token")
        self._tally.predicted_tokens += 1
        text = request.take(token, self._vocab.piece(token, request.options.special))
        if text is not None:
            self._outputs.append(Piece(request.id, text))
        has_new_line = text is not None and "\n" in text.text
        stop_type = request.stop_type(self._vocab.is_eog(token), slot.is_full, has_new_line)
        if stop_type is not None:
            self._finish(request, slot, stop_type, truncated=stop_type == "limit" and slot.is_full)

    # Ends

    def _finish(self, request: Request, slot: Slot, stop_type: StopType, truncated: bool) -> None:
        request.end(stop_type, truncated, slot.id)
        self._advance(request, "finish")

    def _fail(self, request: Request, error: LsmError) -> None:
        request.error = error
        self._advance(request, "fail")

    def _fail_shares(self, shares: list[Share], error: DecodeFailed) -> None:
        for share in list(shares):
            if (request := self._slots[share.slot].request) is not None:
                self._fail(request, error)

    def _advance(self, request: Request, event: str) -> None:
        slot = self._slots[request.slot_id] if request.slot_id is not None else None
        for effect in request.machine.fire(event):
            self._effects[effect](request, slot)

    def _free_slot(self, request: Request, slot: Slot | None, event: str) -> None:
        assert slot is not None and slot.request is request
        for effect in slot.machine.fire(event):
            if effect == "cache_clear":
                self._clear(slot)
        slot.request = None
        self._order.remove(slot)
        self._uses += 1
        slot.last_used = self._uses

    def _report_done(self, request: Request, slot: Slot | None) -> None:
        assert request.finish is not None
        if (text := request.last_text()) is not None:
            self._outputs.append(Piece(request.id, text))
        self._forget(request, Ended(request.id, request.finish))

    def _report_failed(self, request: Request, slot: Slot | None) -> None:
        assert request.error is not None
        self._forget(request, Failed(request.id, request.error))

    def _report_cancelled(self, request: Request, slot: Slot | None) -> None:
        self._forget(request, Cancelled(request.id))

    def _forget(self, request: Request, output: Output) -> None:
        self._outputs.append(output)
        del self._requests[request.id]
        if request in self._queue:
            self._queue.remove(request)
        request.close()

    # The cache

    def _clear(self, slot: Slot) -> None:
        """Only the book-keeping of the sequence is touched, so this works while the memory is released, too."""
        removed = self._decoder.seq_rm(slot.id, 0, -1)
        assert removed, "a whole sequence can always be removed"
        slot.keep(0)

    def _clear_idle(self) -> bool:
        """Make room by clearing the idle slot that was not used for the longest time; whether there was one."""
        idle = [slot for slot in self._slots if slot.request is None and slot.n] if self._limits.shares_cells else []
        if idle:
            self._clear(min(idle, key=lambda slot: slot.last_used))
        return bool(idle)
