"""Defaults of sampling that a model file brings along: `general.sampling.*`.  Pure."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from lsm.engine.sampling import check
from lsm.errors import InvalidRequest
from lsm.values import SAMPLERS, Sampling

log = logging.getLogger("lsm.engine")

PREFIX = "general.sampling."
FIELDS = {
    "temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold", "penalty_last_n": "repeat_last_n", "penalty_repeat": "repeat_penalty", "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau", "mirostat_eta": "mirostat_eta",
}  # fmt: skip
SHARES = ("top_p", "min_p", "xtc_probability", "xtc_threshold")


def sampling_defaults(meta: Callable[[str], str | None]) -> tuple[tuple[str, Any], ...]:
    """(field of Sampling, value) for each that the file gives a sound value for; `meta` reads a key of its metadata as text."""
    numbers = ((field, _number(field, meta(PREFIX + key))) for key, field in FIELDS.items())
    found = (("samplers", _samplers(meta(f"{PREFIX}sequence"))), *numbers)
    return tuple((field, value) for field, value in found if value is not None and _is_sound(field, value))


def _samplers(text: str | None) -> tuple[str, ...] | None:
    names = tuple(name.strip().lower().replace("-", "_") for name in (text or "").split(";"))
    return tuple(name for name in names if name in SAMPLERS) or None


def _number(field: str, text: str | None) -> float | int | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if isinstance(getattr(Sampling(), field), int) else value


def _is_sound(field: str, value: Any) -> bool:
    try:
        check(Sampling(**{field: value}), 0)
        if field == "temperature" and value < 0 or field in SHARES and not 0 <= value <= 1:
            raise InvalidRequest("is out of range", field)
    except InvalidRequest as error:
        log.warning("the model file's default of %s is not used: %s", field, error.message)
        return False
    return True
