"""What a model file says about sampling, and whose word goes before whose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lsm.config import Settings, parse_arguments
from lsm.engine.model_defaults import sampling_defaults
from lsm.values import Options, Sampling

FILE = {
    "general.sampling.sequence": "top_k;temperature;no_such", "general.sampling.top_k": "20", "general.sampling.top_p": "0.9",
    "general.sampling.min_p": "0.01", "general.sampling.xtc_probability": "0.1", "general.sampling.xtc_threshold": "0.2",
    "general.sampling.temp": "0.600000", "general.sampling.penalty_last_n": "128", "general.sampling.penalty_repeat": "1.05",
    "general.sampling.mirostat": "2", "general.sampling.mirostat_tau": "4.0", "general.sampling.mirostat_eta": "0.2",
}  # fmt: skip
SAID = {
    "samplers": ("top_k", "temperature"), "top_k": 20, "top_p": 0.9, "min_p": 0.01, "xtc_probability": 0.1, "xtc_threshold": 0.2,
    "temperature": 0.6, "repeat_last_n": 128, "repeat_penalty": 1.05, "mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.2,
}  # fmt: skip


def test_every_key_of_the_file() -> None:
    """C.4: sampling defaults may come from GGUF metadata; samplers that do not exist are left out."""
    assert dict(sampling_defaults(FILE.get)) == SAID
    assert sampling_defaults(lambda key: None) == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("top_k", "many"), ("top_k", "-5"), ("top_p", "nan"), ("top_p", "1.5"), ("temp", "-1"), ("temp", "inf"), ("penalty_repeat", "0"),
        ("mirostat", "7"), ("sequence", "no_such;nor_this"), ("sequence", ""),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_left_out(key: str, text: str) -> None:
    """C.4: a file cannot make a server refuse every request."""
    assert sampling_defaults({f"general.sampling.{key}": text}.get) == ()


def settings(*flags: str, environ: dict[str, str] | None = None) -> Settings:
    return parse_arguments(["-m", "x.gguf", *flags], environ or {})


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ((), {}, 20),
        (("--top-k", "7"), {}, 7),
        (("--top-k", "40"), {}, 40),  # our own default, but said by the user
        ((), {"LLAMA_ARG_TOP_K": "3"}, 3),
    ],
)
def test_the_users_word_goes_before_the_files(flags: tuple[str, ...], environ: dict[str, str], expected: int) -> None:
    """C.4: only where it was not given on the command line, or in the environment."""
    options = settings(*flags, environ=environ).options_for(sampling_defaults(FILE.get))
    assert options.sampling.top_k == expected and options.sampling.temperature == 0.6


def test_settings_made_in_python_are_the_users_word() -> None:
    """C.4: what differs from our defaults was wanted."""
    mine = Settings(model_paths=(Path("x.gguf"),), options=Options(max_tokens=5, sampling=Sampling(top_k=7)))
    options = mine.options_for((("top_k", 20), ("top_p", 0.5)))
    assert (options.max_tokens, options.sampling.top_k, options.sampling.top_p) == (5, 7, 0.5)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (("-j", '{"type": "object"}'), "json_schema", '{"type": "object"}'),
        (("--adaptive-target", "0.5"), "adaptive_target", 0.5),
        (("--adaptive-decay", "0.5"), "adaptive_decay", 0.5),
        (("-bs",), "backend_sampling", True),
        (("--sampler-seq", "ka"), "samplers", ("top_k", "adaptive_p")),
        (("--samplers", "Top-K;temp;infill"), "samplers", ("top_k", "temperature", "infill")),
    ],
)
def test_flags(flags: tuple[str, ...], field: str, value: Any) -> None:
    """C.4: --json-schema, --adaptive-target, --adaptive-decay, --backend-sampling, --samplers, --sampler-seq."""
    assert getattr(settings(*flags).options.sampling, field) == value
