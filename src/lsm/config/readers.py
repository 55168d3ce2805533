"""How the text of one value is read.  Each reader says what it accepts (`metavar`) and why it refuses (`ValueError`)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

SAMPLER_LETTERS: Mapping[str, str] = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}
SAMPLER_SYNONYMS: Mapping[str, str] = {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "nucleus": "top_p",
    "temp": "temperature",
    "top_nsigma": "top_n_sigma",
    **{name.replace("_", ""): name for name in SAMPLER_LETTERS.values()},
}
SIZE_UNITS: Mapping[str, int] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("kmgt", 1)},
}
SIZE_MAX_BYTES = 2**60
TRUE_WORDS = frozenset({"on", "enabled", "true", "1", "yes"})
FALSE_WORDS = frozenset({"off", "disabled", "false", "0", "no"})


Collect = Callable[[Sequence[Any]], tuple[Any, ...]]  # makes one value of all uses of a repeatable flag


class Reader(Protocol):
    """Turns text into a value or raises ValueError with the end of a sentence: "is not a whole number"."""

    @property
    def metavar(self) -> str: ...

    def __call__(self, text: str) -> object: ...


def _range_text(minimum: float | None, maximum: float | None) -> str:
    if minimum is not None and maximum is not None:
        return f"from {minimum} to {maximum}"
    if minimum is not None:
        return f"of at least {minimum}"
    return f"of at most {maximum}" if maximum is not None else ""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within [minimum, maximum], or one of the words in `words`."""

    minimum: int | None = None
    maximum: int | None = None
    words: Mapping[str, int] = field(default_factory=dict)

    @property
    def metavar(self) -> str:
        return "|".join(("N", *self.words))

    def __call__(self, text: str) -> int:
        if text in self.words:
            return self.words[text]
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise ValueError(self._refusal())
        value = int(text)
        if (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum):
            raise ValueError(self._refusal())
        return value

    def _refusal(self) -> str:
        accepted = f"a whole number {_range_text(self.minimum, self.maximum)}".rstrip()
        return f"is not {' or '.join((accepted, *self.words))}"


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within [minimum, maximum], or one of the words in `words`."""

    minimum: float | None = None
    maximum: float | None = None
    words: Mapping[str, float] = field(default_factory=dict)

    @property
    def metavar(self) -> str:
        return "|".join(("X", *self.words))

    def __call__(self, text: str) -> float:
        if text in self.words:
            return self.words[text]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        outside = (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum)
        if not math.isfinite(value) or outside:
            accepted = f"a number {_range_text(self.minimum, self.maximum)}".rstrip()
            raise ValueError(f"is not {' or '.join((accepted, *self.words))}")
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[str, ...]

    @property
    def metavar(self) -> str:
        return "|".join(self.options)

    def __call__(self, text: str) -> str:
        if text not in self.options:
            raise ValueError(f"is none of {', '.join(self.options)}")
        return text


@dataclass(frozen=True, slots=True)
class OnOff:
    metavar: str = "on|off"

    def __call__(self, text: str) -> bool:
        word = text.lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise ValueError("is neither on nor off")
        return word in TRUE_WORDS


@dataclass(frozen=True, slots=True)
class Text:
    metavar: str = "TEXT"

    def __call__(self, text: str) -> str:
        if not text:
            raise ValueError("is empty")
        return text


@dataclass(frozen=True, slots=True)
class JsonText:
    """A text that is JSON, as it is written."""

    metavar: str = "JSON"

    def __call__(self, text: str) -> str:
        try:
            json.loads(text)
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from None
        except RecursionError:
            raise ValueError("is nested too deeply") from None
        return text


@dataclass(frozen=True, slots=True)
class FilePath:
    metavar: str = "FILE"

    def __call__(self, text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError("is not a path")
        try:
            return Path(text).expanduser()
        except RuntimeError:
            raise ValueError("begins with the home folder of nobody: write the full path") from None


@dataclass(frozen=True, slots=True)
class CommaList:
    metavar: str = "A,B,.."

    def __call__(self, text: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in text.split(","))
        if not all(items):
            raise ValueError("has an empty part between commas")
        return items


@dataclass(frozen=True, slots=True)
class UrlList:
    metavar: str = "URL,.."

    def __call__(self, text: str) -> tuple[str, ...]:
        urls = CommaList()(text)
        if not all(url.startswith(("http://", "https://")) for url in urls):
            raise ValueError("is not a list of http:// or https:// addresses")
        return urls


@dataclass(frozen=True, slots=True)
class SizeOrAuto:
    """Bytes, with the units k, M, G, T (powers of 1000) and Ki, Mi, Gi, Ti (of 1024); or the word `auto`."""

    metavar: str = "SIZE|auto"

    def __call__(self, text: str) -> int | str:
        if text == "auto":
            return text
        size_bytes = _size_bytes(text)
        if size_bytes is None:
            raise ValueError("is neither a size such as 6GiB or 800MB nor the word auto")
        if size_bytes <= 0:
            raise ValueError("is not a size above 0")
        return size_bytes


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes, with the units of SizeOrAuto; 0 too."""

    metavar: str = "SIZE"

    def __call__(self, text: str) -> int:
        size_bytes = _size_bytes(text)
        if size_bytes is None:
            raise ValueError("is not a size such as 6GiB or 800MB")
        return size_bytes


def _size_bytes(text: str) -> int | None:
    """None: no size.  Raises ValueError: one that no counter of bytes holds, be it in C or in the ledger."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([kKmMgGtT]?i?)[bB]?", text)
    if match is None or match[2].lower() not in SIZE_UNITS:
        return None
    size_bytes = int(float(match[1]) * SIZE_UNITS[match[2].lower()])
    if size_bytes > SIZE_MAX_BYTES:
        raise ValueError("is more than any machine has")
    return size_bytes


@dataclass(frozen=True, slots=True)
class Prefix:
    """A path in front of every route: starts with one slash, ends without."""

    metavar: str = "/PATH"

    def __call__(self, text: str) -> str:
        if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", text):
            raise ValueError("is not a path such as /llm")
        return text.rstrip("/")


@dataclass(frozen=True, slots=True)
class Samplers:
    """Names divided by semicolons (`top_k;temperature`), or their letters (`kt`)."""

    metavar: str = "NAMES|LETTERS"

    def __call__(self, text: str) -> tuple[str, ...]:
        names = [name.strip().lower().replace("-", "_") for name in text.split(";")]
        names = [SAMPLER_SYNONYMS.get(name, name) for name in names]
        if all(name in SAMPLER_LETTERS.values() for name in names):
            return tuple(names)
        if text and all(letter in SAMPLER_LETTERS for letter in text):
            return tuple(SAMPLER_LETTERS[letter] for letter in text)
        known = ", ".join(f"{name} ({letter})" for letter, name in SAMPLER_LETTERS.items())
        raise ValueError(f"names a sampler that does not exist here; known: {known}")


@dataclass(frozen=True, slots=True)
class LogitBias:
    """`15043+1.5`, `15043-2`, `15043-inf`: a token's id and what is added to its logit."""

    metavar: str = "TOKEN(+/-)BIAS"

    def __call__(self, text: str) -> tuple[int, float]:
        match = re.fullmatch(r"([0-9]{1,9})([+-](?:[0-9]*\.?[0-9]+|inf))", text)
        if not match or match[2] == "+inf":
            raise ValueError("is not a token's id followed by +BIAS or -BIAS, such as 15043-1.5 or 2-inf")
        return int(match[1]), float(match[2])
