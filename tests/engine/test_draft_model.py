"""A draft model whose memory follows the text: one test for each sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lsm.engine.speculation.draft_model import DraftModel, Guess, Rows
from lsm.engine.speculation.drafter import Ask
from lsm.errors import ServerError
from tests.engine.scripted import continuation, next_token

TEXT = [5, 6, 7, 8]


class ScriptedDraft:
    """Guesses what the scripted model says after what is really in its memory."""

    n_vocab = 28

    def __init__(self, n_batch: int = 16, n_cells: int = 99) -> None:
        self.n_batch, self.n_cells = n_batch, n_cells
        self.held: dict[int, list[int]] = {}
        self.calls: list[int] = []
        self.probabilities: list[float] = []  # of the next guesses; 1 after these
        self.fails = False

    def decode(self, rows: Sequence[Rows]) -> Sequence[Guess] | None:
        n_rows = sum(len(row.tokens) for row in rows)
        assert 0 < n_rows <= self.n_batch
        if self.fails:
            raise ServerError("planted")
        if sum(map(len, self.held.values())) + n_rows > self.n_cells:
            return None
        self.calls.append(n_rows)
        for row in rows:
            held = self.held.setdefault(row.slot, [])
            assert row.pos == len(held) and len(row.tokens), "beside what is there"
            held += row.tokens.tolist()
        return [Guess(next_token(self.held[row.slot]), self._probability()) for row in rows if row.guess]

    def _probability(self) -> float:
        return self.probabilities.pop(0) if self.probabilities else 1.0

    def forget(self, slot: int, start: int) -> None:
        del self.held[slot][start:]


def ask(tokens: Sequence[int], slot: int = 0, n_max: int = 9) -> Ask:
    return Ask(slot, np.array(tokens, np.int32), n_max)


def guess(model: DraftModel, *asks: Ask) -> dict[int, list[int]]:
    return {slot: draft.tolist() for slot, draft in model.draft(asks).items()}


def test_it_reads_the_text_and_guesses_step_by_step() -> None:
    """C.8 --spec-draft-n-max: one decode for the text, and one for each guess but the last."""
    port = ScriptedDraft()
    assert guess(DraftModel(port, 3), ask(TEXT)) == {0: continuation(TEXT, 3)}
    assert port.calls == [4, 1, 1]


def test_right_guesses_need_not_be_decoded_again() -> None:
    """S22: only what the memory lacks is decoded: here the last guess, and the target's own token."""
    port, text = ScriptedDraft(), continuation(TEXT, 4)
    model = DraftModel(port, 3)
    guess(model, ask(TEXT))
    port.calls.clear()
    assert guess(model, ask([*TEXT, *text])) == {0: continuation([*TEXT, *text], 3)}
    assert port.calls == [2, 1, 1]


def test_it_is_never_ahead_of_the_text_or_beside_it() -> None:
    """S22: wrong guesses, another prompt, a shift: what differs leaves its memory before it guesses."""
    port = ScriptedDraft()
    model = DraftModel(port, 2)
    for text in ([5, 6, 7], [5, 6, 7, 9], [5, 6, 9, 9, 9], [8], [5, 7, 9, 9], [5, 7]):
        assert guess(model, ask(text)) == {0: continuation(text, 2)}


def test_unlikely_guesses_end_the_draft() -> None:
    """C.8 --spec-draft-p-min: what is less likely is not guessed, nor what would follow it."""
    port = ScriptedDraft()
    port.probabilities = [0.9, 0.4]
    assert guess(DraftModel(port, 5, p_min=0.5), ask(TEXT)) == {0: continuation(TEXT, 1)}
    assert port.calls == [4, 1]


def test_short_drafts_are_not_used() -> None:
    """C.8 --spec-draft-n-min."""
    port = ScriptedDraft()
    port.probabilities = [0.9, 0.4]
    assert guess(DraftModel(port, 5, n_min=2, p_min=0.5), ask(TEXT)) == {0: []}


def test_a_long_text_is_read_in_batches_while_others_get_their_guesses() -> None:
    """D.2: no slot waits for the prompt of another, neither here nor in the target."""
    port = ScriptedDraft(n_batch=4)
    model = DraftModel(port, 1)
    long = [*TEXT] * 3
    drafts = [guess(model, ask(long, 0), ask([5], 1)) for _ in range(4)]
    assert [draft.get(1) for draft in drafts] == [continuation([5], 1)] * 4
    assert [draft.get(0) for draft in drafts] == [None, None, None, continuation(long, 1)]


def test_idle_slots_make_room() -> None:
    """D.2: where all share one cache; the guesses of those who ask go before what is kept of others."""
    port = ScriptedDraft(n_cells=7)
    model = DraftModel(port, 1)
    guess(model, ask(TEXT, 0))
    assert guess(model, ask(TEXT, 1)) == {1: continuation(TEXT, 1)}
    assert port.held[0] == []


def test_without_room_nothing_is_guessed() -> None:
    """A draft is a help, never a reason to fail; the memory is empty then, and is filled again."""
    port = ScriptedDraft(n_cells=3)
    model = DraftModel(port, 1)
    assert guess(model, ask(TEXT)) == {}
    port.n_cells = 9
    assert guess(model, ask(TEXT)) == {0: continuation(TEXT, 1)}
    port.fails = True
    assert guess(model, ask([*TEXT, 9])) == {} and port.held[0] == []


def test_what_it_cannot_read_it_does_not_guess_from() -> None:
    """S22: media, and tokens that only the target knows."""
    port = ScriptedDraft()
    model = DraftModel(port, 1)
    assert guess(model, Ask(0, np.array(TEXT, np.int32), 9, is_text=False), ask([5, 28], 1), ask([5], 2)) == {2: continuation([5], 1)}
