"""What a finished request gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lsm.api import Finish, Timings, TokenProbs

Tokens = npt.NDArray[np.int32]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """`text` is whole characters without the stop string; `tokens` is int32 of shape [n], as sampled."""

    text: str
    tokens: Tokens
    stop_type: str  # "eos", "word", "limit"
    stopping_word: str
    truncated: bool
    prompt_tokens: int
    completion_tokens: int
    timings: Timings
    seed: int | None = None  # of the random numbers; None: nothing was sampled
    probs: tuple[TokenProbs, ...] = ()  # with `n_probs`: one for each token but those of a stop string

    def __str__(self) -> str:
        return self.text


def answer_of(texts: Sequence[str], tokens: Sequence[int], finish: Finish, probs: Sequence[TokenProbs] = ()) -> Answer:
    return Answer(
        text="".join(texts),
        tokens=np.asarray(tokens, dtype=np.int32),
        stop_type=finish.stop_type,
        stopping_word=finish.stopping_word,
        truncated=finish.truncated,
        prompt_tokens=finish.prompt_tokens,
        completion_tokens=finish.completion_tokens,
        timings=finish.timings,
        seed=finish.seed,
        probs=tuple(probs),
    )
