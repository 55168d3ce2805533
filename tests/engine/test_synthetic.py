"""S19: the mathematics of synthetic acceptance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.speculation.synthetic import Die, conditional, n_right, resolve_rates
from lsm.errors import ConfigError


@given(st.integers(1, 64), st.floats(0, 1))
def test_a_length_becomes_powers_of_one_probability(n_max: int, share: float) -> None:
    """S19: p + p**2 + ... + p**n_max = L - 1."""
    length = 1 + share * n_max
    rates = resolve_rates(length, (), n_max)
    assert len(rates) == n_max and math.isclose(1 + sum(rates), length, abs_tol=1e-6 * n_max * n_max)
    assert all(math.isclose(rate, rates[0] ** (i + 1)) for i, rate in enumerate(rates))


def test_the_ends_of_the_range_are_exact() -> None:
    """S19: L = n_max + 1 gives p = 1, L = 1 gives p = 0."""
    assert resolve_rates(4.0, (), 3) == (1.0, 1.0, 1.0)
    assert resolve_rates(1.0, (), 3) == (0.0, 0.0, 0.0)
    assert resolve_rates(None, (), 3) == ()


@pytest.mark.parametrize(
    ("length", "rates", "n_max", "words"),
    [
        (2.0, (0.5,), 1, "in two ways"),
        (2.0, (), 0, "at least one token"),
        (None, (0.5,), 0, "at least one token"),
        (None, (0.5, 0.5), 3, "one for each"),
        (None, (0.5, 1.5), 2, "probabilities"),
        (None, (0.5, -0.1), 2, "probabilities"),
        (None, (math.nan, 0.1), 2, "probabilities"),
        (None, (0.5, 0.6), 2, "must not grow"),
        (0.9, (), 2, "from 1 to 3"),
        (3.1, (), 2, "from 1 to 3"),
        (math.inf, (), 2, "from 1 to 3"),
        (-1.0, (), 2, "from 1 to 3"),
    ],
)
def test_what_is_no_acceptance(length: float | None, rates: tuple[float, ...], n_max: int, words: str) -> None:
    """S19: validation; each message says what is possible."""
    with pytest.raises(ConfigError, match=words):
        resolve_rates(length, rates, n_max)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=16))
def test_the_conditional_product_gives_the_rates_back(values: list[float]) -> None:
    """S19: rate_i / rate_{i-1}; 0 after a 0."""
    rates = tuple(sorted(values, reverse=True))
    product = 1.0
    for rate, probability in zip(rates, conditional(rates), strict=True):
        product *= probability
        assert math.isclose(product, rate, rel_tol=1e-9, abs_tol=1e-300)


def test_the_die_is_that_of_the_standard_library_of_c_plus_plus() -> None:
    """S19: mt19937, of which the standard fixes the 10,000th number for the seed 5489; two of them make one uniform double."""
    die = Die(5489)
    throws = [die.throw() for _ in range(5000)]
    low_bits_last = np.random.RandomState(5489).bytes(4 * 10_000)[-4:]
    assert int.from_bytes(low_bits_last, "little") == 4123659995
    assert throws[-1] == pytest.approx(4123659995 / 2**32, abs=2**-31)
    assert all(0 <= throw < 1 for throw in throws)


def test_one_throw_for_each_position_that_is_looked_at() -> None:
    """S19: it stops at the first that is refused, and throws no more."""
    die, same = Die(1), Die(1)
    assert n_right((1.0, 1.0, 0.0, 1.0), (5, 6, 7, 8), frozenset(), die) == 2
    for _ in range(3):
        same.throw()
    assert die.throw() == same.throw()


def test_an_end_is_never_right_though_the_die_is_thrown() -> None:
    """S19: a drafted end of generation is refused."""
    die, same = Die(1), Die(1)
    assert n_right((1.0, 1.0), (5, 2), frozenset({2}), die) == 1
    same.throw(), same.throw()
    assert die.throw() == same.throw()


def test_acceptance_is_as_frequent_as_asked() -> None:
    """S19: on average so many tokens a verification, the target's own included."""
    probabilities = conditional(resolve_rates(2.5, (), 4))
    die = Die(3)
    lengths = [1 + n_right(probabilities, (5, 6, 7, 8), frozenset(), die) for _ in range(4000)]
    assert sum(lengths) / len(lengths) == pytest.approx(2.5, abs=0.08)
