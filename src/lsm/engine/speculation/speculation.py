"""Guesses for the slots that write, and what is kept so that they can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lsm.engine.batch import Work
from lsm.engine.prefix import Tokens
from lsm.engine.prompt import text_tokens
from lsm.engine.rewinding import Rewinding
from lsm.engine.slot import Slot
from lsm.engine.speculation.drafter import NO_GUESS, Ask, Drafter
from lsm.engine.speculation.synthetic import Die, Rates, conditional, n_right
from lsm.engine.tally import Tally

N_SPARE = 2  # positions behind a draft: of the target's own token, and one so that the context can shift then


class Speculation:
    """The drafters are asked in their order; who guesses something first is heard.

    rates: S19; none: guesses are verified.  eog: tokens that end an answer.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        rewinding: Rewinding,
        tally: Tally,
        clock_ns: Callable[[], int],
        rates: Rates = (),
        eog: frozenset[int] = frozenset(),
    ) -> None:
        self._drafters = drafters
        self._rewinding = rewinding
        self._tally = tally
        self._clock_ns = clock_ns
        self._probabilities = conditional(rates)
        self._eog = eog
        self._asked: dict[int, tuple[object, int]] = {}  # by slot: the request that was asked for last, and the length of its text
        self._drafted: dict[int, Drafter] = {}  # by slot: whose guesses are being verified

    def work(self, slots: Sequence[Slot], n_rows: int) -> list[Work]:
        """Of slots that write, what is more than a token: guesses behind it, each of which can be taken back from the cache; or, before it,
        what has left the cache with earlier ones, and then no guesses: with more of them ever more would be lost.

        `n_rows`: of the batch with a token for each slot.
        """
        lost = [_work(slot, slot.request.pending, NO_GUESS) for slot in slots if slot.request is not None and len(slot.request.pending)]
        whole = [slot for slot in slots if slot.request is not None and not len(slot.request.pending)]
        start_ns = self._clock_ns()
        asks = [ask for slot in whole if (ask := self._ask(slot)).n_max > 0]
        drafts = self._guess(asks)
        n_rows += sum(map(len, drafts.values())) + sum(len(work.tokens) for work in lost)
        guessed = [slot for slot in whole if slot.id in drafts and self._rewinding.mark(slot, n_rows)]
        self._note_time([slot for slot in whole if slot.id in {ask.slot for ask in asks}], self._clock_ns() - start_ns)
        return [*lost, *(_work(slot, NO_GUESS, drafts[slot.id]) for slot in guessed)]

    def _note_time(self, slots: Sequence[Slot], elapsed_ns: int) -> None:
        """Guessing is part of the time that an answer takes."""
        for slot in slots:
            assert slot.request is not None
            slot.request.predicted_ns += elapsed_ns
            self._tally.predicted_ns += elapsed_ns

    def _ask(self, slot: Slot) -> Ask:
        request = slot.request
        assert request is not None and request.sampled is not None
        tokens = np.append(slot.tokens, np.int32(request.sampled))
        before, n_before = self._asked.get(slot.id, (None, 0))
        if before is not request or len(tokens) < n_before:  # a shift took some away
            for drafter in self._drafters:
                drafter.begin(slot.id)
        self._asked[slot.id] = request, len(tokens)
        n_max = slot.n_ctx - len(tokens) + 1 - N_SPARE
        if (n_left := request.options.max_tokens - request.predicted_n) > 0:
            n_max = min(n_max, n_left - 1)
        return Ask(slot.id, text_tokens(tokens) if slot.spans else tokens, n_max, is_text=not slot.spans)

    def _guess(self, asks: Sequence[Ask]) -> dict[int, Tokens]:
        drafts: dict[int, Tokens] = {}
        for drafter in self._drafters:
            asks = [ask for ask in asks if ask.slot not in drafts]
            found = drafter.draft(asks) if asks else {}
            for ask in asks:
                if len(draft := found.get(ask.slot, NO_GUESS)[: ask.n_max]):
                    drafts[ask.slot], self._drafted[ask.slot] = draft, drafter
        return drafts

    def n_forced(self, slot: Slot, draft: Tokens) -> int | None:
        """How many of these guesses count as right; None: those that are."""
        request = slot.request
        if not self._probabilities or request is None or request.sampler is None:
            return None
        if request.die is None:
            request.die = Die(request.sampler.seed)
        return n_right(self._probabilities, draft.tolist(), self._eog, request.die)

    def verified(self, slot: Slot, n_drafted: int, n_accepted: int) -> None:
        request = slot.request
        assert request is not None
        request.draft_n += n_drafted
        request.draft_n_accepted += n_accepted
        self._tally.verified(n_drafted, n_accepted)
        self._drafted[slot.id].accepted(slot.id, n_accepted)


def _work(slot: Slot, before: Tokens, draft: Tokens) -> Work:
    request = slot.request
    assert request is not None and request.sampled is not None
    return Work(slot.id, slot.pos, np.concatenate([before, np.array([request.sampled], np.int32), draft]), True, len(draft))
