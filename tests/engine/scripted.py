"""A model without weights: it answers from what is really in its cache, so that a wrong cache gives a wrong answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lsm.engine.batch import Batch
from lsm.engine.checkpoints import State
from lsm.engine.limits import Limits
from lsm.engine.outputs import Job, Output
from lsm.engine.ports import Draw, Media, Sampler, SourceReader
from lsm.engine.prompt import Span, placeholders
from lsm.engine.scheduler import Scheduler
from lsm.engine.speculation.drafter import Drafter
from lsm.errors import InvalidRequest, LsmError
from lsm.runtime.executor import Executor, Fired
from lsm.values import Finish, Options, Sampling, TokenProb, TokenProbs
from tests.engine.results import end as end
from tests.engine.results import error as error
from tests.engine.results import result as result
from tests.engine.results import texts as texts
from tests.engine.results import tokens as tokens

HEADER = 77  # of the states of a scripted memory
END = 0  # ends a generation
NEWLINE = 1
N_TOKENS = 28
PIECES = (b"", b"\n", b" ", *(bytes([97 + i]) for i in range(25)))  # END, NEWLINE, a blank, the letters a to y


def next_token(cached: Sequence[int]) -> int:
    """What comes after these tokens: a letter that depends on all of them."""
    value = 7
    for token in cached:
        value = (value * 31 + token + 1) % 10007
    return 3 + value % 25


def continuation(prompt: Sequence[int], n: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class ScriptedVocab:
    n_tokens = N_TOKENS

    def is_eog(self, token: int) -> bool:
        return token == END

    def piece(self, token: int, special: bool) -> bytes:
        if token == END:
            return b"<end>" if special else b""
        return PIECES[token]


def text_of(tokens: Sequence[int]) -> str:
    return b"".join(PIECES[token] for token in tokens).decode()


@dataclass
class ScriptedSampler:
    """Draws what the model says, unless a script says otherwise."""

    script: list[int] = field(default_factory=list)
    prompt_seen: list[int] = field(default_factory=list)
    is_closed: bool = False
    seed: int = 1
    failure: str = "the script says so"
    tells: bool = False  # how likely each token was

    def shows(self, token: int) -> bool:
        return False

    def probs(self, token: int, special: bool) -> tuple[TokenProbs, ...]:
        return (TokenProbs(TokenProb(token, PIECES[token], -1.0), ()),) if self.tells else ()

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        self.prompt_seen.extend(tokens)

    def close(self) -> None:
        self.is_closed = True


@dataclass(eq=False)
class Cell:
    """A place in the cache.  Sequences that share it see it move together."""

    token: int
    pos: int
    chunk: Span | None = None  # the media that it is part of


class ScriptedDecoder:
    """Sequences of cells; `window` tokens are still there of each when it slides, and nothing can be cut off when it is recurrent.

    `shares_cells`: a copied sequence has the same cells, not copies of them.
    """

    def __init__(self, n_cells: int = 10**6, window: int = 0, is_recurrent: bool = False, shares_cells: bool = True) -> None:
        self.n_cells, self.window, self.is_recurrent, self.shares_cells = n_cells, window, is_recurrent, shares_cells
        self.cells: dict[int, list[Cell]] = {}
        self.forgotten: dict[int, int] = {}  # positions before this are gone from the sliding layers
        self.codes: list[int] = []  # what the next calls return instead of decoding
        self.error: LsmError | None = None
        self.calls: list[int] = []  # rows of each call
        self.scales: list[tuple[float, ...]] = []  # of adapters, as they were set
        self.on_decode: Callable[[], None] = lambda: None
        self.cells_of: dict[bytes, list[Cell]] = {}  # in each state that was saved
        self.is_away = self.no_room_for_states = self.spoiled_states = False

    def cached(self, slot: int) -> list[int]:
        """The tokens of a sequence; they must lie without a gap, each at its position."""
        cells = sorted(self.cells.get(slot, []), key=lambda cell: cell.pos)
        assert {cell.pos for cell in cells} == set(range(self._next_position(slot))), "positions are missing"
        texts = [cell.pos for cell in cells if cell.chunk is None]
        assert len(set(texts)) == len(texts), "positions are taken twice"
        return [cell.token for cell in cells]

    def decode(self, batch: Batch, start: int, stop: int, draws: Sequence[Draw]) -> tuple[int, Sequence[Sequence[int]]]:
        self.on_decode()
        self.calls.append(stop - start)
        if self.error is not None:
            raise self.error
        code = self.codes.pop(0) if self.codes else 0
        if code == 0 and self._n_used() + stop - start > self.n_cells:
            code = 1
        if code:
            if code != 1:  # some rows were decoded, some not: nobody knows
                for row in range(start, stop, 2):
                    self._add(int(batch.seq[row]), END)
            return code, ()
        runs: dict[int, list[int]] = {i: [] for i in range(len(draws))}
        for row in range(start, stop):
            slot = int(batch.seq[row])
            assert batch.pos[row] == self._next_position(slot), "a position was left out, or decoded twice"
            self._add(slot, int(batch.tokens[row]))
            drawing = [i for i, draw in enumerate(draws) if draw.row <= row - start <= draw.row + len(draw.draft)]
            assert bool(batch.logits[row]) == bool(drawing)
            for i in drawing:
                self._draw(draws[i], row - start - draws[i].row, slot, runs[i])
        for slot, cells in self.cells.items():
            if self.window:
                self.forgotten[slot] = max(self.forgotten.get(slot, 0), len(cells) - self.window)
        return 0, list(runs.values())

    def _draw(self, draw: Draw, i: int, slot: int, run: list[int]) -> None:
        """In the i-th row behind the one that it draws from: if all guesses up to this row were right."""
        sampler, guesses = draw.sampler, draw.draft[: draw.n_forced]
        assert isinstance(sampler, ScriptedSampler) and not sampler.is_closed
        if tuple(run) != guesses[:i]:
            return
        token = sampler.script.pop(0) if sampler.script else next_token(self.cached(slot))
        run.append(guesses[i] if draw.n_forced is not None and i < draw.n_forced else token)

    def set_adapters(self, scales: Sequence[float]) -> None:
        self.scales.append(tuple(scales))

    def decode_media(self, media: Media, slot: int, pos: int, sampler: Sampler | None) -> tuple[int, int | None]:
        self.on_decode()
        assert media.embeddings is not None, "it was not encoded"
        if self.error is not None:
            raise self.error
        code = self.codes.pop(0) if self.codes else 0
        if code:
            return code, None
        span, cells = media.span, self.cells.setdefault(slot, [])
        assert pos == self._next_position(slot)
        assert span.start == len(cells), "it stands at another place in the prompt"
        for i, token in enumerate(placeholders(span.id, span.n_tokens).tolist()):
            cells.append(Cell(token, pos + min(i, span.n_pos - 1), span))
        if sampler is None:
            return 0, None
        assert isinstance(sampler, ScriptedSampler) and not sampler.is_closed
        return 0, sampler.script.pop(0) if sampler.script else next_token(self.cached(slot))

    def _n_used(self) -> int:
        return len({id(cell) for cells in self.cells.values() for cell in cells})

    def _next_position(self, slot: int) -> int:
        return max((cell.pos for cell in self.cells.get(slot, ())), default=-1) + 1

    def _add(self, slot: int, token: int) -> None:
        self.cells.setdefault(slot, []).append(Cell(token, self._next_position(slot)))

    def seq_rm(self, slot: int, start: int, stop: int) -> bool:
        if start == 0 and stop == -1:
            self.cells.pop(slot, None)
            self.forgotten.pop(slot, None)
            return True
        if self.is_recurrent and start < self._next_position(slot):
            return False
        stop = 10**9 if stop == -1 else stop
        leaving = [cell for cell in self.cells[slot] if start <= cell.pos < stop]
        self.cells[slot] = [cell for cell in self.cells[slot] if cell not in leaving]
        halved = {cell.chunk for cell in leaving if cell.chunk} & {cell.chunk for cell in self.cells[slot]}
        assert not halved, "half of an image was kept"
        return True

    def save_state(self, slot: int, partial: bool) -> State | None:
        """The forgotten position, then the tokens; a sliding window's snapshot begins where the window does."""
        assert not self.is_away, "the memory was looked at while it was away"
        if self.no_room_for_states:
            return None
        cells = self.cells.get(slot, [])
        forgotten = max(self.forgotten.get(slot, 0), len(cells) - self.window) if self.window else 0
        state = np.array([HEADER, slot, partial, forgotten, *self.cached(slot)], np.int32).view(np.uint8)
        self.cells_of[state.tobytes()] = [replace(cell) for cell in cells]
        return state

    def state_size(self, slot: int) -> int:
        return 4 * (4 + len(self.cells.get(slot, ())))

    def load_state(self, slot: int, state: State, partial: bool) -> bool:
        assert not self.is_away, "the memory was looked at while it was away"
        header, _, was_partial, forgotten, *cached = state.view(np.int32).tolist()
        if self.spoiled_states or header != HEADER or was_partial != partial:
            return False
        if not partial:
            self.cells.pop(slot, None)
            if self._n_used() + len(cached) > self.n_cells:
                return False
            texts = [Cell(token, i) for i, token in enumerate(cached)]
            self.cells[slot] = [replace(cell) for cell in self.cells_of.get(state.tobytes(), texts)]
        else:  # what sees everything is still there, and must be of the same prefix
            assert self.cached(slot)[: len(cached)] == cached, "a snapshot of other tokens"
            if self.is_recurrent:
                del self.cells[slot][len(cached) :]
        self.forgotten[slot] = forgotten
        return True

    def seq_pos_max(self, slot: int) -> int:
        return self._next_position(slot) - 1

    def seq_cp(self, source: int, target: int) -> None:
        assert not self.cells.get(target)
        cells = self.cells.get(source, [])
        self.cells[target] = list(cells) if self.shares_cells else [replace(cell) for cell in cells]
        self.forgotten[target] = self.forgotten.get(source, 0)

    def seq_add(self, slot: int, start: int, stop: int, delta: int) -> None:
        for cell in self.cells[slot]:
            cell.pos += delta if start <= cell.pos < stop else 0

    def seq_pos_min(self, slot: int) -> int:
        return self.forgotten.get(slot, 0) if self.cells.get(slot) else -1


@dataclass
class ScriptedMedia:
    span: Span
    embeddings: np.ndarray | None = None


class ScriptedEncoder:
    """Takes `n_batch` chunks at a time."""

    def __init__(self, n_batch: int = 1) -> None:
        self.n_batch = n_batch
        self.is_lost = False
        self.loses_weights = False  # with the next call
        self.error: LsmError | None = None
        self.calls: list[list[str]] = []  # the ids of each

    def encode(self, media: Media, more: Sequence[Media]) -> None:
        if self.error is not None:
            raise self.error
        batch = [media, *more][: self.n_batch]
        self.calls.append([one.span.id for one in batch])
        for one in batch:
            assert isinstance(one, ScriptedMedia) and one.embeddings is None
            one.embeddings = np.zeros((one.span.n_tokens, 4), np.float32)
        self.is_lost = self.loses_weights


def with_media(*parts: Sequence[int] | tuple[str, int] | tuple[str, int, int]) -> tuple[list[int], tuple[ScriptedMedia, ...]]:
    """A prompt of token ids and of media `(id, n_tokens)` or `(id, n_tokens, n_pos)`."""
    prompt: list[int] = []
    media: list[ScriptedMedia] = []
    for part in parts:
        if part and isinstance(part[0], str):
            id, n_tokens, n_pos = (*part, part[1])[:3]
            media.append(ScriptedMedia(Span(len(prompt), int(n_tokens), int(n_pos), str(id))))
            prompt += placeholders(str(id), int(n_tokens)).tolist()
        else:
            prompt += part  # type: ignore[arg-type]
    return prompt, tuple(media)


class ScriptedEmbedder:
    """The embedding of a sequence is (its last token, how many tokens it has); of a row (its token, its position)."""

    def __init__(self, decoder: ScriptedDecoder) -> None:
        self.decoder = decoder
        self.batches: list[list[tuple[int, int]]] = []  # (slot, rows) of each share

    def embed(self, batch: Batch) -> int:
        assert batch.logits[: batch.n].all(), "a row without an embedding"
        batch.logits[: batch.n] = 0  # the scripted decoder would draw tokens
        code, _ = self.decoder.decode(batch, 0, batch.n, ())
        self.last = np.stack([batch.tokens[: batch.n], batch.pos[: batch.n]], axis=1).astype(np.float32)
        if code == 0:
            self.batches.append([(share.slot, share.stop - share.start) for share in batch.shares])
        return code

    def pooled(self, slot: int) -> np.ndarray:
        cached = self.decoder.cached(slot)
        return np.array([cached[-1], len(cached)], np.float32)

    def rows(self, start: int, stop: int) -> np.ndarray:
        return self.last[start:stop]


class Bench:
    """A scheduler over a scripted model, and what came out of it."""

    def __init__(
        self, decoder: ScriptedDecoder | None = None, reader: SourceReader | None = None, drafters: Sequence[Drafter] = (), **limits: object
    ) -> None:
        self.decoder = decoder or ScriptedDecoder()
        self.encoder = ScriptedEncoder()
        self.embedder = ScriptedEmbedder(self.decoder)
        self.now_ns = 0
        self.fired: list[Fired] = []
        self.samplers: list[ScriptedSampler] = []
        self.scripts: list[list[int]] = []
        self.script: list[int] = []  # for the sampler of the next job
        self.n_look_back = 0
        defaults: dict[str, object] = {"n_slots": 2, "n_ctx_slot": 64, "n_batch": 8, "n_swa": 0, "shares_cells": True}
        self.scheduler = Scheduler(
            Limits(**(defaults | limits)),  # type: ignore[arg-type]
            self.decoder,
            ScriptedVocab(),
            self.new_sampler,
            lambda machine, subject: Executor(machine, subject, self.fired.append),
            lambda: self.now_ns,
            self.encoder,
            embedder=self.embedder,
            reader=reader,
            drafters=drafters,
        )
        self.decoder.on_decode = lambda: setattr(self, "now_ns", self.now_ns + 1_000_000)  # each call takes 1 ms

    def new_sampler(self, options: Sampling) -> tuple[ScriptedSampler, int]:
        if options.grammar == "bad":
            raise InvalidRequest("is not GBNF", "grammar")
        self.samplers.append(ScriptedSampler(self.script, seed=options.seed))
        self.script = self.scripts.pop(0) if self.scripts else []
        return self.samplers[-1], self.n_look_back

    def submit(
        self,
        id: str,
        prompt: Sequence[int],
        script: Sequence[int] = (),
        media: Sequence[ScriptedMedia] = (),
        scripts: Sequence[Sequence[int]] = (),
        user_starts: tuple[int, ...] = (),
        **options: object,
    ) -> None:
        """`script`: what the answer will be; `scripts`: what the other choices will be."""
        self.script, self.scripts = list(script), [list(other) for other in scripts]
        tokens = np.array(prompt, np.int32)
        self.scheduler.submit(Job(id, tokens, Options(**options), tuple(media), user_starts))  # type: ignore[arg-type]

    def embed(self, id: str, prompt: Sequence[int], norm: int = -1) -> None:
        self.scheduler.submit(Job(id, np.array(prompt, np.int32), Options(max_tokens=0, cache_prompt=False), embed=norm))

    def run(self, n_steps_max: int = 1000) -> list[Output]:
        """Step until nothing is left to do; all outputs."""
        for _ in range(n_steps_max):
            if not self.scheduler.has_work:
                return self.scheduler.outputs()
            self.scheduler.step()
        raise AssertionError(f"not done after {n_steps_max} steps: {self.scheduler.slots()}")

    def answer(self, id: str, prompt: Sequence[int], script: Sequence[int] = (), **options: object) -> tuple[str, Finish]:
        self.submit(id, prompt, script, **options)
        return result(self.run(), id)

    def cached(self, slot: int) -> list[int]:
        """What the slot believes to be in the cache; checked against what is."""
        tokens: list[int] = self.scheduler.pool.slots[slot].tokens.tolist()
        assert tokens == self.decoder.cached(slot)
        return tokens
