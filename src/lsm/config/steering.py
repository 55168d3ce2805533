"""Flags of what acts beside a model's weights: LoRA adapters and control vectors.  The values stand in `lsm.tuning`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lsm.config.readers import OnOff
from lsm.config.setting import Setting, flat
from lsm.values import FLOAT32_MAX

ADAPTERS = "LoRA adapters and control vectors"
MAX_LAYER = 1024

Scaled = tuple[Path, float]


@dataclass(frozen=True, slots=True)
class Files:
    """`a.gguf,b.gguf`; each acts as it is."""

    metavar: str = "FILE,.."

    def __call__(self, text: str) -> tuple[Scaled, ...]:
        names = text.split(",")
        if not all(names):
            raise ValueError("is not a list of files such as a.gguf,b.gguf")
        return tuple((Path(name).expanduser(), 1.0) for name in names)


@dataclass(frozen=True, slots=True)
class ScaledFiles:
    """`a.gguf:0.5,b.gguf:-1`."""

    metavar: str = "FILE:SCALE,.."

    def __call__(self, text: str) -> tuple[Scaled, ...]:
        return tuple(map(_scaled, text.split(",")))


def _scaled(item: str) -> Scaled:
    name, colon, number = item.rpartition(":")
    try:
        scale = float(number)
    except ValueError:
        scale = float("nan")
    if not name or not colon or not abs(scale) <= FLOAT32_MAX:
        raise ValueError("is not a list of files, each with its scale, such as a.gguf:0.5,b.gguf:1")
    return Path(name).expanduser(), scale


@dataclass(frozen=True, slots=True)
class LayerRange:
    """`1 12`: two words."""

    metavar: str = "START END"

    def __call__(self, text: str) -> tuple[int, int]:
        words = text.split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise ValueError("is not two layers, such as 1 12")
        first, last = (int(word) for word in words)
        if not 1 <= first <= last <= MAX_LAYER:
            raise ValueError(f"is not a range of layers from 1 to {MAX_LAYER}, the first one first")
        return first, last


STEERING: tuple[Setting, ...] = (
    Setting(
        ADAPTERS,
        ("--lora",),
        Files(),
        "LoRA adapters to load; GET /lora-adapters numbers them from 0, those of --lora before those of --lora-scaled",
        (),
        collect=flat,
        name="steering.lora",
    ),
    Setting(
        ADAPTERS,
        ("--lora-scaled",),
        ScaledFiles(),
        "the same, each with the scale it acts by",
        (),
        collect=flat,
        name="steering.lora_scaled",
    ),
    Setting(
        ADAPTERS,
        (),
        OnOff(),
        "adapters act only when POST /lora-adapters says so",
        False,
        constants={"--lora-init-without-apply": "on"},
        name="steering.lora_init_without_apply",
    ),
    Setting(
        ADAPTERS,
        ("--control-vector",),
        Files(),
        "vectors that are added to the outputs of the layers; several are summed",
        (),
        collect=flat,
        name="steering.control_vector",
    ),
    Setting(
        ADAPTERS,
        ("--control-vector-scaled",),
        ScaledFiles(),
        "the same, each multiplied by its scale",
        (),
        collect=flat,
        name="steering.control_vector_scaled",
    ),
    Setting(
        ADAPTERS,
        ("--control-vector-layer-range",),
        LayerRange(),
        "first and last layer that control vectors act on",
        None,
        default_text="all layers",
        n_words=2,
        name="steering.control_vector_layers",
    ),
)
