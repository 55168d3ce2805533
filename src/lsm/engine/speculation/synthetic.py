"""S19: guesses that count as right by the throw of a die, so that speed can be measured at a given acceptance.  Pure.

A rate is the unconditional probability that a draft is right up to and with this position.  The text that comes out means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lsm.errors import ConfigError

N_BISECTIONS = 32
Rates = tuple[float, ...]


def resolve_rates(length: float | None, rates: Rates, n_max: int) -> Rates:
    """One rate for each of the `n_max` positions of a draft; none where neither is given.

    length: how many tokens a verification shall give on average, the target's own included.  The rates are then p, p**2, ... with
    p + p**2 + ... + p**n_max = length - 1.

    Raises `ConfigError`.
    """
    if length is None and not rates:
        return ()
    if length is not None and rates:
        raise ConfigError("--spec-synth-len and --spec-synth-rates say the same in two ways: leave one away")
    if n_max <= 0:
        raise ConfigError("--spec-synth-len and --spec-synth-rates are about drafts: choose --spec-type, with at least one token a draft")
    if rates:
        return _checked(rates, n_max)
    assert length is not None
    if not (math.isfinite(length) and 1 <= length <= n_max + 1):
        raise ConfigError(f"--spec-synth-len {length:g}: must be from 1 to {n_max + 1}, one more than the longest draft")
    p = _ratio(length - 1, n_max)
    return tuple(p ** (i + 1) for i in range(n_max))


def _checked(rates: Rates, n_max: int) -> Rates:
    if len(rates) != n_max:
        raise ConfigError(f"--spec-synth-rates has {len(rates)} numbers, but drafts have up to {n_max} tokens: give one for each")
    if not all(math.isfinite(rate) and 0 <= rate <= 1 for rate in rates):
        raise ConfigError("--spec-synth-rates: must be probabilities, from 0 to 1")
    if any(later > earlier for earlier, later in zip(rates, rates[1:], strict=False)):
        raise ConfigError("--spec-synth-rates: must not grow, as a draft is right at a position only if it is right before it")
    return rates


def _ratio(total: float, n: int) -> float:
    """p with p + p**2 + ... + p**n = total."""
    if total in (0, n):
        return 1.0 if total else 0.0
    low, high = 0.0, 1.0
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        if sum(middle ** (i + 1) for i in range(n)) < total:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def conditional(rates: Rates) -> Rates:
    """The probability of each position, given that those before it were right."""
    return tuple(rate / before if before else 0.0 for before, rate in zip((1.0, *rates), rates, strict=False))


class Die:
    """Uniform numbers of MT19937, as C++'s `uniform_real_distribution` of `double` makes them of `mt19937` with the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def throw(self) -> float:
        return min(int.from_bytes(self._random.bytes(8), "little") / 2**64, math.nextafter(1, 0))


def n_right(probabilities: Sequence[float], draft: Sequence[int], eog: frozenset[int], die: Die) -> int:
    """How many tokens of the draft count as right.  One throw for each that is looked at; a token that ends an answer never is right."""
    for i, (token, probability) in enumerate(zip(draft, probabilities, strict=False)):
        if not die.throw() < probability or token in eog:
            return i
    return len(draft)
