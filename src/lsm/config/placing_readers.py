"""Readers of values that name tensors, metadata and CPUs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

CPUS_MAX = 512  # ggml's own limit on threads
KEY_BYTES_MAX = 127  # llama.cpp's fields for a key, and for a text, with a zero at the end
KvOverride = tuple[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class TensorPlaces:
    """`blk\\.1\\..*=CPU,output=CUDA0`: pairs of a regular expression and a buffer type's name."""

    metavar: str = "REGEX=BUFFER,.."

    def __call__(self, text: str) -> tuple[tuple[str, str], ...]:
        pairs = tuple(item.rpartition("=") for item in text.split(","))
        if not all(pattern and equals and buffer for pattern, equals, buffer in pairs):
            raise ValueError("is not a list such as ffn_up=CPU,output=CUDA0")
        for pattern, _, _ in pairs:
            try:
                re.compile(pattern)  # llama.cpp's own reader of expressions would end the process
            except re.error as error:
                raise ValueError(f"holds {pattern!r}, which is no regular expression: {error}") from None
        return tuple((pattern, buffer) for pattern, _, buffer in pairs)


@dataclass(frozen=True, slots=True)
class DeviceNames:
    """`CUDA0,CUDA1`, or the word `none`."""

    metavar: str = "NAME,..|none"

    def __call__(self, text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not all(names) or len(set(names)) < len(names):
            raise ValueError("is not a list of different devices such as CUDA0,CUDA1")
        if "none" in names and len(names) > 1:
            raise ValueError("names devices and none")
        return () if names == ("none",) else names


@dataclass(frozen=True, slots=True)
class Shares:
    """`3,1`: proportions that are not all 0; llama-server's slash divides them too."""

    metavar: str = "N0,N1,.."

    def __call__(self, text: str) -> tuple[float, ...]:
        try:
            shares = tuple(map(float, re.split(r"[,/]", text)))
        except ValueError:
            shares = ()
        if not all(math.isfinite(share) and share >= 0 for share in shares) or not any(shares):
            raise ValueError("is not a list of shares such as 3,1")
        return shares


@dataclass(frozen=True, slots=True)
class KvOverrides:
    """`tokenizer.ggml.add_bos_token=bool:false,..`."""

    metavar: str = "KEY=TYPE:VALUE,.."

    def __call__(self, text: str) -> tuple[KvOverride, ...]:
        return tuple(map(_override, text.split(",")))


def _override(item: str) -> KvOverride:
    match = re.fullmatch(r"([^=]+)=(int|float|bool|str):(.*)", item, re.DOTALL)
    if match is None or len(match[1].encode()) > KEY_BYTES_MAX:
        raise ValueError("is not a list such as tokenizer.ggml.add_bos_token=bool:false; types are int, float, bool, str")
    key, kind, value = match.groups()
    try:
        match kind:
            case "int" if -(2**63) <= int(value) < 2**63:
                return key, int(value)
            case "float":
                return key, float(value)
            case "bool" if value in ("true", "false"):
                return key, value == "true"
            case "str" if len(value.encode()) <= KEY_BYTES_MAX:
                return key, value
    except ValueError:
        pass
    raise ValueError(f"gives {key} the value {value!r}, which is no {kind}" + (" of at most 127 bytes" if kind == "str" else ""))


@dataclass(frozen=True, slots=True)
class MebibyteList:
    """`1024`, `1024,512`; `/` divides as well."""

    metavar: str = "MiB,.."

    def __call__(self, text: str) -> tuple[int, ...]:
        if not re.fullmatch(r"[0-9]{1,9}([,/][0-9]{1,9})*", text):
            raise ValueError("is not a number of MiB, or several with commas")
        return tuple(map(int, re.split("[,/]", text)))


@dataclass(frozen=True, slots=True)
class CpuMask:
    metavar: str = "HEX"

    def __call__(self, text: str) -> tuple[int, ...]:
        digits = text.removeprefix("0x")
        if not re.fullmatch(r"[0-9a-fA-F]{1,128}", digits) or not int(digits, 16):
            raise ValueError("is not a hexadecimal mask of CPUs such as 0xff")
        bits = int(digits, 16)
        return tuple(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


@dataclass(frozen=True, slots=True)
class CpuRange:
    metavar: str = "LO-HI"

    def __call__(self, text: str) -> tuple[int, ...]:
        match = re.fullmatch(r"([0-9]{0,3})-([0-9]{0,3})", text)
        low, high = (int(match[1] or 0), int(match[2] or CPUS_MAX - 1)) if match and text != "-" else (1, 0)
        if not low <= high < CPUS_MAX:
            raise ValueError("is not a range of CPUs such as 0-7")
        return tuple(range(low, high + 1))
