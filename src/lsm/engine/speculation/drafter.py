"""What guesses the next tokens of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lsm.engine.prefix import Tokens

NO_GUESS: Tokens = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """What comes after `tokens`, shape (n,), int32, which end with the token sampled last?  `n_max`: most guesses that are of use.

    `is_text`: no media among them.
    """

    slot: int
    tokens: Tokens
    n_max: int
    is_text: bool = True


class Drafter(Protocol):
    @property
    def n_max(self) -> int:
        """The longest draft it makes."""
        ...

    def begin(self, slot: int) -> None:
        """What the slot is asked about from now on may have nothing to do with what it was asked about before."""
        ...

    def draft(self, asks: Sequence[Ask]) -> Mapping[int, Tokens]:
        """Guesses by slot; none for some, longer than wanted for others."""
        ...

    def accepted(self, slot: int, n: int) -> None:
        """So many of its last draft for this slot were right."""
        ...
