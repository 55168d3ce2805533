"""What the scheduler needs of a loaded model.  `native` provides it; tests may script it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lsm.engine.batch import Batch
from lsm.machines.table import Instance, Machine
from lsm.values import Sampling


class OwnedInstance(Instance, Protocol):
    """A machine in some state, closed by its owner when the subject is gone."""

    def close(self) -> None: ...


NewInstance = Callable[[Machine, str], OwnedInstance]


class Sampler(Protocol):
    """Draws the tokens of one request."""

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """Tell the penalties what the prompt ends with."""
        ...

    def close(self) -> None: ...


NewSampler = Callable[[Sampling], tuple[Sampler, int]]  # the sampler, and how many tokens of the prompt it wants to know


class Vocabulary(Protocol):
    @property
    def n_tokens(self) -> int: ...

    def is_eog(self, token: int) -> bool: ...

    def piece(self, token: int, special: bool) -> bytes: ...


class Decoder(Protocol):
    """The KV cache, one sequence for each slot, and the way through the model."""

    def decode(self, batch: Batch, start: int, stop: int, samplers: Sequence[Sampler]) -> tuple[int, Sequence[int]]:
        """Decode rows `start` to `stop`.  Each row that gives logits has a sampler, in order, which draws a token from them.

        Returns (llama_decode's code, the tokens; none unless the code is 0).  `LsmError`: nothing is known about the rows' sequences.
        """
        ...

    def seq_rm(self, slot: int, start: int, stop: int) -> bool:
        """Remove positions `start` to `stop` (-1: to the end).  False: this memory cannot remove a part; nothing was changed."""
        ...

    def seq_pos_min(self, slot: int) -> int:
        """The oldest position that every layer still has; -1: none."""
        ...
