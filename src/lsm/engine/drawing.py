"""Draws with guesses behind them, as rows for one step of a context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lsm.engine.ports import Draw, Sampler
from lsm.engine.prefix import Tokens

NO_GUESS = -1


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """For each row that may be sampled: rows, drafted (int32) and forced (int8) of `lsm.native.context.Context.step`, and its sampler.

    spans: of each draw its first row here, and how many it has.
    """

    rows: Tokens
    samplers: list[Sampler]
    drafted: Tokens | None
    forced: NDArray[np.int8] | None
    spans: list[tuple[int, int]]

    @classmethod
    def of(cls, draws: Sequence[Draw]) -> Self:
        if not any(draw.draft for draw in draws):
            rows_drawn = np.array([draw.row for draw in draws], np.int32)
            return cls(rows_drawn, [draw.sampler for draw in draws], None, None, [(i, 1) for i in range(len(draws))])
        rows: list[int] = []
        samplers: list[Sampler] = []
        drafted: list[int] = []
        forced: list[bool] = []
        spans: list[tuple[int, int]] = []
        for draw in draws:
            guesses = draw.draft[: draw.n_forced]
            n = len(guesses) + 1
            spans.append((len(rows), n))
            rows += range(draw.row, draw.row + n)
            samplers += [draw.sampler] * n
            drafted += [*guesses, NO_GUESS]
            forced += [*[draw.n_forced is not None] * len(guesses), False]
        return cls(
            np.array(rows, np.int32),
            samplers,
            np.array(drafted, np.int32),
            np.array(forced, np.int8) if any(forced) else None,
            spans,
        )
