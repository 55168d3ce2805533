"""A Python value for a setting, checked by the reader of its flag: a range is written once, and one message serves every door."""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from lsm.config import Setting
from lsm.config.readers import Choice, JsonText, LogitBias, Number, OnOff, Samplers, Text, Whole

SHOWN_MAX = 200  # characters of a wrong value in a message


def value_of(entry: Setting, value: Any) -> Any:
    """`value` as the setting holds it.  Raises ValueError with the end of a sentence: "is not a whole number from 1 to 256"."""
    if isinstance(value, str) and not is_encodable(value):
        raise ValueError("holds half of a surrogate pair, which is no character")
    if isinstance(entry.read, LogitBias):
        return _logit_bias(value)
    if isinstance(entry.read, Samplers):
        return entry.read(";".join(_texts(value)))
    if isinstance(entry.read, JsonText) and not isinstance(value, str):
        return _json(value)
    if entry.collect is not None:
        return entry.collect([entry.read(text) for text in _texts(value)])
    if isinstance(entry.read, OnOff):
        return _flag(value)
    return entry.read(_text(entry, value))


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can hold it.  Python's texts may contain one half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    """A wrong value, for a message: short, and whatever its own `repr` does."""
    try:
        text = repr(value)
    except Exception:
        return f"this {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither True nor False")
    return value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _text(entry: Setting, value: Any) -> str:
    """What the flag would be followed by.  Numbers are numbers, except for words such as `auto`."""
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    is_word = isinstance(value, str)
    if isinstance(entry.read, Whole | Number):
        if isinstance(value, bool) or not (hasattr(value, "__float__") or (is_word and value in entry.read.words)):
            raise ValueError("is not a number")
        if isinstance(value, float) and value.is_integer():
            return str(int(value))  # -1.0 is the word -1
    elif isinstance(entry.read, Text | Choice) and not is_word:
        raise ValueError("is not a text")
    return str(value)


def _texts(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError("is neither a text nor a list of texts, none of them empty")
    if not all(map(is_encodable, texts)):
        raise ValueError("holds half of a surrogate pair, which is no character")
    return texts


def _logit_bias(value: Any) -> tuple[tuple[int, float], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    try:
        biases = tuple((int(token), float(bias)) for token, bias in pairs)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("does not map ids of tokens to what is added to their logits, such as {15043: -1.5}") from None
    if any(token < 0 or math.isnan(bias) or bias == math.inf for token, bias in biases):
        raise ValueError("holds an id below 0, or a bias that is neither finite nor -inf")
    return biases
