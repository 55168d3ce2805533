"""What the scheduler needs of a loaded model.  `native` provides it; tests may script it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lsm.engine.batch import Batch
from lsm.engine.checkpoints import State
from lsm.engine.prefix import Tokens
from lsm.engine.prompt import Span
from lsm.machines.table import Instance, Machine
from lsm.values import Sampling, TokenProbs

NO_CELL = 1  # of Decoder.decode: no room in the KV cache; nothing was changed


class OwnedInstance(Instance, Protocol):
    """A machine in some state, closed by its owner when the subject is gone."""

    def asks(self, event: str) -> tuple[str, ...]:
        """The facts that decide what this event does in the present state."""
        ...

    def close(self) -> None: ...


NewInstance = Callable[[Machine, str], OwnedInstance]


class Sampler(Protocol):
    """Draws the tokens of one request."""

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """Tell the penalties what the prompt ends with."""
        ...

    @property
    def seed(self) -> int:
        """Of the random numbers, also where it was drawn."""
        ...

    @property
    def failure(self) -> str:
        """Why it has drawn no token."""
        ...

    def shows(self, token: int) -> bool:
        """Whether this token is shown as text though it is a special one."""
        ...

    def probs(self, token: int, special: bool) -> tuple[TokenProbs, ...]:
        """How likely the token was, one entry; none where nobody asked.  To be asked once for each token drawn, in order."""
        ...

    def close(self) -> None: ...


NewSampler = Callable[[Sampling], tuple[Sampler, int]]  # the sampler, and how many tokens of the prompt it wants to know


class Draw(NamedTuple):
    """A sampler draws a token from the logits of a row.

    draft: what the batch has behind this row, guesses of the next tokens.  While the sampler draws what was guessed, it goes on to the
    next row.  n_forced: so many guesses count as right instead, whatever is drawn, and no more.
    """

    sampler: Sampler
    row: int
    draft: tuple[int, ...] = ()
    n_forced: int | None = None


class Vocabulary(Protocol):
    @property
    def n_tokens(self) -> int: ...

    def is_eog(self, token: int) -> bool: ...

    def piece(self, token: int, special: bool) -> bytes: ...


class Media(Protocol):
    """An image or a piece of sound in a prompt, ready to be encoded."""

    @property
    def span(self) -> Span: ...

    @property
    def embeddings(self) -> NDArray[np.float32] | None:
        """Shape (span.n_tokens, n_embd); None: it has not been encoded yet."""
        ...


class Encoder(Protocol):
    """The way from media to embeddings.  What it needs of the device comes and goes here (`lsm.machines.encoder`)."""

    def encode(self, media: Media, more: Sequence[Media]) -> None:
        """Encode `media`, and of `more` what can be done along with it.  `LsmError`: it was not."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether the weights had to leave for it and did not come back, or its file has changed: nothing can be decoded any more."""
        ...


class Embedder(Protocol):
    """The way through the model to embeddings."""

    def embed(self, batch: Batch) -> int:
        """Compute all rows of the batch; llama_decode's code.  `LsmError`: nothing is known about the rows' sequences."""
        ...

    def pooled(self, slot: int) -> NDArray[np.float32]:
        """Shape (n_embd,): the embedding of what the last batch had of this slot's sequence; of a reranker its scores."""
        ...

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Shape (stop - start, n_embd): the embeddings of these rows of the last batch."""
        ...


class SourceReader(Protocol):
    """The encoder of a model that reads a prompt before it writes."""

    def encode(self, tokens: Tokens, slot: int) -> int:
        """What the slot's next tokens look at from now on; llama_encode's code."""
        ...


class Decoder(Protocol):
    """The KV cache, one sequence for each slot, and the way through the model."""

    def decode(self, batch: Batch, start: int, stop: int, draws: Sequence[Draw]) -> tuple[int, Sequence[Sequence[int]]]:
        """Decode rows `start` to `stop`, and draw.  The rows of `draws` count from `start`; several may draw from the same.

        Returns (llama_decode's code, for each draw the guesses that were right and the token after them, which is -1 where the sampler
        could draw none; nothing unless the code is 0).  `LsmError`: nothing is known about the rows' sequences.
        """
        ...

    def set_adapters(self, scales: Sequence[float]) -> None:
        """From now on each LoRA adapter acts by its scale."""
        ...

    def decode_media(self, media: Media, slot: int, pos: int, sampler: Sampler | None) -> tuple[int, int | None]:
        """Put the embeddings into the cache, the first at position `pos`; a sampler draws a token from the logits of the last.

        Returns (llama_decode's code, the token).  With code 1, and with `LsmError`, part of them may be in the cache.
        """
        ...

    def seq_rm(self, slot: int, start: int, stop: int) -> bool:
        """Remove positions `start` to `stop` (-1: to the end).  False: this memory cannot remove a part; nothing was changed."""
        ...

    def save_state(self, slot: int, partial: bool) -> State | None:
        """A copy of what the memory holds of a sequence; `partial`: of the parts that cannot lose single tokens.

        None: the host has no memory for it.
        """
        ...

    def state_size(self, slot: int) -> int:
        """The bytes that `save_state` would take for the whole."""
        ...

    def load_state(self, slot: int, state: State, partial: bool) -> bool:
        """Put a copy into a sequence, in place of what it holds.  False: it does not fit, and what the sequence holds is unknown."""
        ...

    def seq_cp(self, source: int, target: int) -> None:
        """Let the empty sequence `target` hold what `source` holds."""
        ...

    def seq_add(self, slot: int, start: int, stop: int, delta: int) -> None:
        """Move positions `start` to `stop` by `delta`.  Only where the memory can (`Limits.can_shift`)."""
        ...

    def seq_pos_min(self, slot: int) -> int:
        """The oldest position that every layer still has; -1: none."""
        ...

    def seq_pos_max(self, slot: int) -> int:
        """The latest position; -1: none."""
        ...
