"""C.2 --embd-normalize: what makes embeddings comparable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.normalize import normalized

VECTORS = np.array([[3.0, -4.0], [0.0, 0.5]], np.float32)


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (-1, [[3.0, -4.0], [0.0, 0.5]]),
        (0, [[24570.0, -32760.0], [0.0, 32760.0]]),
        (1, [[3 / 7, -4 / 7], [0.0, 1.0]]),
        (2, [[0.6, -0.8], [0.0, 1.0]]),
        (3, [[3 / 91 ** (1 / 3), -4 / 91 ** (1 / 3)], [0.0, 1.0]]),
    ],
)
def test_each_norm(norm: int, expected: list[list[float]]) -> None:
    """C.2: -1 none, 0 largest magnitude to 32760, 1 taxicab, 2 euclidean, p the p-norm; each row by itself."""
    np.testing.assert_allclose(normalized(VECTORS, norm), expected, rtol=1e-6)


@pytest.mark.parametrize("norm", [-1, 0, 1, 2, 9])
def test_nothing_stays_nothing(norm: int) -> None:
    """C.2: a row of zeros has no direction, and no warning is worth it."""
    assert not normalized(np.zeros((1, 4), np.float32), norm).any()


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8), st.integers(1, 1000))
def test_a_row_ends_with_the_size_one(values: list[float], p: int) -> None:
    """C.2: for every p, also where powers of the numbers would leave what a float can hold."""
    row = normalized(np.array([values], np.float32), p).astype(np.float64)
    if np.abs(np.array(values, np.float32)).max() > 1e-30:
        largest = np.abs(row).max()
        assert largest * (np.abs(row / largest) ** p).sum() ** (1 / p) == pytest.approx(1.0, rel=1e-4)
