"""Embeddings of a length that can be compared.  Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NONE, MAX_ABSOLUTE = -1, 0
INT16_SCALE = 32760.0  # what the largest magnitude becomes with MAX_ABSOLUTE, as in llama-server

Vectors = NDArray[np.float32]


def normalized(vectors: Vectors, norm: int) -> Vectors:
    """Each row of `vectors`, shape (n, n_embd), float32, divided by its size; a row of zeros stays as it is.

    norm: -1 leaves the rows alone; 0: by the largest magnitude, times INT16_SCALE; p > 0: by the p-norm, so 2 gives the length 1.
    """
    if norm == NONE:
        return vectors
    magnitudes = np.abs(vectors.astype(np.float64))
    if norm == MAX_ABSOLUTE:
        sizes = magnitudes.max(axis=1) / INT16_SCALE
    else:
        largest = magnitudes.max(axis=1, keepdims=True)  # a power of what is much above 1, or below, has no place in a float
        ratios = np.divide(magnitudes, largest, out=np.zeros_like(magnitudes), where=largest > 0)
        sizes = largest[:, 0] * (ratios**norm).sum(axis=1) ** (1.0 / norm)
    factors = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    return (vectors * factors[:, None]).astype(np.float32)
