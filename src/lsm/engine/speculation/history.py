"""Where some tokens stand in a row of tokens.  Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lsm.engine.prefix import Tokens


def occurrences(tokens: Tokens, key: Tokens, start: int, stop: int) -> NDArray[np.intp]:
    """The indices i with start <= i < stop at which `key`, shape (n,), stands in `tokens`, growing.  stop + n <= len(tokens)."""
    found = np.arange(start, max(start, stop))
    for i in range(len(key) - 1, -1, -1):  # the last one differs most often: answers repeat words, not sentences
        found = found[tokens[found + i] == key[i]]
    return found
