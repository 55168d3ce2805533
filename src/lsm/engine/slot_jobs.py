"""What may be asked of a slot between two requests: its content, another content, or nothing (S31).

Each waits until its slot is idle, and goes before the next request.  States are read and written here, so the memory must be resident (S6):
only steps of the scheduler come here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lsm.engine.checkpoints import STATE_HEADER_BYTES, Checkpoints, State, latest, within
from lsm.engine.limits import Limits
from lsm.engine.outputs import Cancelled, Ended, Failed
from lsm.engine.pool import Pool
from lsm.engine.ports import Decoder
from lsm.engine.prefix import window_reaches
from lsm.engine.prompt import positions
from lsm.engine.prompt_cache import Held
from lsm.engine.rewinding import Rewinding
from lsm.engine.slot import Slot
from lsm.engine.slot_content import EraseSlot, LoadSlot, SaveSlot, SlotContent, SlotDone, SlotJob
from lsm.engine.slot_file import Damaged
from lsm.engine.stashing import Stashing
from lsm.errors import InvalidRequest, LsmError, ServerError


class SlotJobs:
    def __init__(self, pool: Pool, decoder: Decoder, stashing: Stashing, rewinding: Rewinding, limits: Limits, n_vocab: int) -> None:
        self._pool = pool
        self._decoder = decoder
        self._stashing = stashing
        self._rewinding = rewinding
        self._limits = limits
        self._n_vocab = n_vocab
        self._waiting: dict[str, SlotJob] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    def add(self, job: SlotJob) -> None:
        self._waiting[job.id] = job
        if not 0 <= job.slot < len(self._pool.slots):
            self._end(job, Failed(job.id, InvalidRequest("Invalid slot ID")))

    def cancel(self, id: str) -> None:
        if id in self._waiting:
            self._end(self._waiting[id], Cancelled(id))

    def fail_all(self, error: LsmError) -> None:
        for job in list(self._waiting.values()):
            self._end(job, Failed(job.id, error))

    def step(self) -> None:
        """Do what is asked of idle slots, in order."""
        for job in list(self._waiting.values()):
            slot = self._pool.slots[job.slot]
            if slot.request is None:
                try:
                    self._end(job, Ended(job.id, self._done(slot, job)))
                except LsmError as error:
                    self._end(job, Failed(job.id, error))

    def _end(self, job: SlotJob, output: Ended | Failed | Cancelled) -> None:
        del self._waiting[job.id]
        self._pool.outputs.append(output)

    def _done(self, slot: Slot, job: SlotJob) -> SlotDone:
        match job:
            case SaveSlot():
                self._stashing.recall(slot)
                return SlotDone(slot.n, self._content(slot))
            case LoadSlot():
                if not job.is_sound:
                    self._check_state(job.content)
                return self._loaded(slot, job.content)
            case EraseSlot():
                slot.put_away, n_tokens = None, slot.n
                self._rewinding.clear(slot)
                return SlotDone(n_tokens)
        raise AssertionError(job)

    def _content(self, slot: Slot) -> SlotContent:
        held = replace(slot.held, tokens=slot.tokens.copy())
        return SlotContent(held, self._state(slot), within(slot.checkpoints, slot.n))

    def _state(self, slot: Slot) -> State:
        state = self._decoder.save_state(slot.id, partial=False)
        if state is None:
            raise ServerError("the host has no memory for the state of the slot")
        return state

    def _loaded(self, slot: Slot, content: SlotContent) -> SlotDone:
        """All or nothing: what the slot held is put back where the new content does not fit."""
        self._check(slot, content)
        before = self._content(slot)
        slot.put_away = None
        content.state[:STATE_HEADER_BYTES] = before.state[:STATE_HEADER_BYTES]
        if not self._put(slot, content.held, content.state, content.checkpoints):
            if not self._put(slot, before.held, before.state, before.checkpoints):
                self._rewinding.clear(slot)
            raise InvalidRequest("Unable to restore slot: it is of another model or other settings, or the KV cache has no room for it")
        return SlotDone(slot.n, n_resumable=self._resumable(slot))

    def _check(self, slot: Slot, content: SlotContent) -> None:
        tokens = content.held.tokens
        if len(tokens) > slot.n_ctx:
            raise InvalidRequest(f"Unable to restore slot: its {len(tokens)} tokens do not fit into the slot's context of {slot.n_ctx}")
        text = np.delete(tokens, [row for span in content.held.spans for row in range(span.start, span.stop)])
        if len(text) and not (0 <= text.min() and text.max() < self._n_vocab):
            raise InvalidRequest("Unable to restore slot: it has tokens that this model does not know")

    def _check_state(self, content: SlotContent) -> None:
        shape = self._limits.state_shape
        if shape is None:
            raise InvalidRequest("Unable to restore slot: no file tells its digest, and states of this model cannot be checked without")
        try:
            shape.check(content.state, positions(len(content.held.tokens), content.held.spans))
        except Damaged as damaged:
            raise InvalidRequest(f"Unable to restore slot: {damaged}") from None

    def _put(self, slot: Slot, held: Held, state: State, checkpoints: Checkpoints) -> bool:
        self._rewinding.clear(slot)
        if not self._decoder.load_state(slot.id, state, partial=False):
            return False
        slot.fill(held.tokens, held.spans)
        slot.adapters = held.adapters
        slot.checkpoints = checkpoints
        if self._decoder.seq_pos_max(slot.id) == slot.last_pos and self._decoder.state_size(slot.id) == len(state):
            return True
        self._rewinding.clear(slot)
        return False

    def _resumable(self, slot: Slot) -> int:
        """How many tokens stay if the same prompt comes again, whose last token has to be decoded."""
        n = max(slot.n - 1, 0)
        if n == 0 or (self._limits.can_trim and window_reaches(slot.pos - 1, self._decoder.seq_pos_min(slot.id), self._limits.n_swa)):
            return n
        found = latest(slot.checkpoints, n)
        return found.n_tokens if found else 0
