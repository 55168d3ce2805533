"""How a slot's memory gets to the prefix that a new prompt shares with it, and the snapshots that are kept for this (S11).

What may happen stands in the table `lsm.machines.checkpoint`; its effects are performed here.  All of this but the looks at positions
reads or writes the memory, so it must be resident (S6): only steps of the scheduler come here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lsm.engine.batch import Work
from lsm.engine.checkpoints import Checkpoint, State, is_due, latest, next_stop, with_new, with_room, within
from lsm.engine.limits import Limits
from lsm.engine.ports import Decoder
from lsm.engine.prefix import Tokens, window_reaches
from lsm.engine.prompt import position
from lsm.engine.slot import Slot

log = logging.getLogger("lsm.engine")


class Rewinding:
    def __init__(self, decoder: Decoder, limits: Limits) -> None:
        self._decoder = decoder
        self._limits = limits
        self._spacing = limits.spacing

    # When a slot gets a prompt

    def match(self, slot: Slot, n: int, n_common: int, mark: Checkpoint | None = None) -> None:
        """Bring the memory to the first `n` tokens, or to fewer where it cannot.  The prompt and the slot share `n_common` of them.

        `mark`: one more snapshot, of what the slot holds.
        """
        found = latest((*slot.checkpoints, mark) if mark else slot.checkpoints, n)
        in_memory = n in (0, slot.n) or self._can_go_back(slot, n)
        effects: dict[str, Callable[[], None]] = {
            "forget_beyond": lambda: self.forget_beyond(slot, n_common),
            "forget_all": lambda: self.forget_beyond(slot, 0),
            "trim": lambda: self._trim(slot, n),
            "clear": lambda: self._clear(slot),
        }
        event, facts = "match", {"in_memory": in_memory, "found": found is not None}
        while event:
            done, event, facts = event, "", facts
            for effect in slot.way_back.fire(done, **facts):
                if effect == "restore":
                    assert found is not None
                    event, facts, n = "restored" if self._restore(slot, found) else "refused", {}, found.n_tokens
                else:
                    effects[effect]()

    def _can_go_back(self, slot: Slot, n: int) -> bool:
        pos_min, pos = self._decoder.seq_pos_min(slot.id), position(n, slot.spans)
        return self._limits.can_trim and window_reaches(pos, pos_min, self._limits.n_swa)

    def _restore(self, slot: Slot, checkpoint: Checkpoint) -> bool:
        done = self._decoder.load_state(slot.id, checkpoint.state, partial=True)
        if not done:
            log.warning("slot %d: the snapshot of %d tokens cannot be put back; all is decoded again", slot.id, checkpoint.n_tokens)
        return done

    def _trim(self, slot: Slot, n: int) -> None:
        if n == slot.n or (n and self._decoder.seq_rm(slot.id, position(n, slot.spans), -1)):
            slot.keep(n)
        else:
            self._clear(slot)

    def _clear(self, slot: Slot) -> None:
        removed = self._decoder.seq_rm(slot.id, 0, -1)
        assert removed, "a whole sequence can always be removed"
        slot.keep(0)

    def forget_beyond(self, slot: Slot, n_tokens: int) -> None:
        slot.checkpoints = within(slot.checkpoints, n_tokens)

    # When guesses are verified

    def mark(self, slot: Slot, n_rows: int) -> bool:
        """The next batch, of up to `n_rows` rows, has guesses for this slot: be able to take them back, or say that this cannot be.

        A sliding window has spare cells for one computation, so that what one has moved out of it is still there.
        """
        limits, request = self._limits, slot.request
        assert request is not None
        slot.mark = None
        if limits.can_trim and (not limits.n_swa or n_rows <= limits.n_ubatch):
            return True
        state = self._decoder.save_state(slot.id, partial=True)
        if state is not None:
            slot.mark = Checkpoint(slot.n, request.id, state)
        return state is not None

    def take_back(self, slot: Slot, n_wrong: int) -> Tokens:
        """The last tokens of the slot, if any, were guessed wrong.  What of the others left the memory with them, shape (n,), int32."""
        kept = slot.tokens[: slot.n - n_wrong].copy()
        if n_wrong:
            self.match(slot, len(kept), len(kept), slot.mark)
        slot.mark = None
        return kept[slot.n :]

    # While the prompt is decoded

    def work(self, slot: Slot) -> Work:
        """What comes next of the slot's prompt, up to where a snapshot may have to be taken."""
        work, request = slot.work(), slot.request
        assert request is not None
        if self._spacing.n_max == 0:
            return work
        n_rows = next_stop(slot.n, len(request.prompt), request.user_starts, slot.checkpoints, self._spacing) - slot.n
        return work if n_rows >= len(work.tokens) else Work(work.slot, work.pos, work.tokens[:n_rows], want_logits=False)

    def before_batch(self, slot: Slot, n_rows: int) -> None:
        """The next batch decodes `n_rows` tokens of the slot's prompt."""
        request, spacing = slot.request, self._spacing
        assert request is not None
        is_behind_media = any(span.stop == slot.n for span in slot.spans)
        if is_behind_media or not is_due(slot.n, n_rows, len(request.prompt), request.user_starts, slot.checkpoints, spacing):
            return
        state: State | None = None
        for effect in slot.way_back.fire("due"):
            if effect == "make_room":
                slot.checkpoints = with_room(slot.checkpoints, slot.n, request.id, spacing)
            else:
                assert effect == "save", effect
                state = self._decoder.save_state(slot.id, partial=True)
        if state is None:
            slot.way_back.fire("refused")
            return
        for effect in slot.way_back.fire("saved"):
            assert effect == "keep", effect
            slot.checkpoints = with_new(slot.checkpoints, Checkpoint(slot.n, request.id, state))

    # When the sequence goes

    def clear(self, slot: Slot) -> None:
        """Only book-keeping, so this works while the memory is released, too."""
        for effect in slot.way_back.fire("lost"):
            assert effect == "forget_all", effect
            slot.checkpoints = ()
        self._clear(slot)
