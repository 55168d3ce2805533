"""What fitting a model into memory talks about: what things take, what is wished, what is planned.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lsm.tuning import CPU_BUFFER

GUESSES = 4  # before a search halves instead


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One device's memory in bytes, and what a plan takes of it.  `buffer`: ggml's name for a buffer there."""

    total: int
    free: int
    model: int = 0
    context: int = 0
    compute: int = 0
    buffer: str = CPU_BUFFER

    @property
    def used(self) -> int:
        return self.model + self.context + self.compute

    def plus(self, other: Use) -> Use:
        return replace(self, model=self.model + other.model, context=self.context + other.context, compute=self.compute + other.compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a model and its context take.  `devices` are those that hold it beside the host; `n_layer` without the output layer."""

    devices: tuple[Use, ...]
    host: Use
    n_layer: int
    n_ctx_train: int
    n_expert: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """n_ctx: of all streams together; 0: the model's.  gpu_layers None: all.  placements: see `Loading.placements`."""

    n_ctx: int
    gpu_layers: int | None = None
    tensor_split: tuple[int, ...] = ()
    placements: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """n_ctx: what the user chose, 0 if nothing.  n_ctx_min: smallest context of a stream that may be chosen instead.

    margins: bytes that each device keeps free, one for all or one for each.  fixed: why layers may not be moved; empty: they may.
    """

    n_ctx: int = 0
    n_ctx_min: int = 4096
    n_streams: int = 1
    margins: tuple[int, ...] = (1024 << 20,)
    fixed: str = ""
    n_placements_max: int = 4096

    def margin(self, device: int) -> int:
        return self.margins[min(device, len(self.margins) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """`plan` is the best that was found.  `missing`: why it does not fit all the same; empty: it fits."""

    plan: Plan
    missing: str = ""


Measure = Callable[[Plan], Measured]


def largest(low: int, high: int, use: Callable[[int], int], target: int, use_low: int, use_high: int) -> int:
    """The largest n in [low, high) with use(n) <= target, for a use that grows; `low` if there is none.

    use_low and use_high are use(low) and use(high).  A straight line between what is known gives the next guess.
    """
    n_asked = 0
    while high - low > 1:
        width, rise = high - low, use_high - use_low
        guess = width * (target - use_low) // rise if rise > 0 and n_asked < GUESSES else width // 2
        middle = low + min(max(guess, 1), width - 1)
        used, n_asked = use(middle), n_asked + 1
        if used <= target:
            low, use_low = middle, used
        else:
            high, use_high = middle, used
    return low


def targets(measured: Measured, bounds: Bounds) -> list[int]:
    """Bytes that each device may give."""
    return [device.free - bounds.margin(i) for i, device in enumerate(measured.devices)]
