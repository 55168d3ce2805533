"""Flags of devices and of the copies of their memory (C.1), read as llama-server reads them."""

from __future__ import annotations

import pytest
from lsm_cli.server import run

from lsm.config import Settings, parse_arguments
from lsm.errors import ConfigError
from lsm.tuning import Placing


def parsed(*words: str, **environ: str) -> Settings:
    return parse_arguments(["-m", "x.gguf", *words], environ)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), Placing()),
        (("-ngl", "20"), Placing(gpu_layers=20)),
        (("--gpu-layers", "all"), Placing(gpu_layers=-1)),
        (("--n-gpu-layers", "auto"), Placing(gpu_layers=-1)),
        (("-dev", "CUDA1,CUDA0"), Placing(devices=("CUDA1", "CUDA0"))),
        (("--device", "none"), Placing(devices=())),
        (("-sm", "none", "-mg", "1"), Placing(split_mode="none", main_gpu=1)),
        (("--tensor-split", "3,1"), Placing(tensor_split=(3.0, 1.0))),
        (("-ts", "3/1"), Placing(tensor_split=(3.0, 1.0))),
    ],
)
def test_the_flags_of_devices(words: tuple[str, ...], expected: Placing) -> None:
    """C.1: -ngl, -dev, -sm, -ts, -mg; all layers on every GPU unless somebody says otherwise."""
    assert parsed(*words).placing == expected


def test_the_environment_of_devices() -> None:
    """C.1: LLAMA_ARG_ names of the same settings."""
    environ = {
        "LLAMA_ARG_N_GPU_LAYERS": "7",
        "LLAMA_ARG_DEVICE": "CUDA0",
        "LLAMA_ARG_SPLIT_MODE": "row",
        "LLAMA_ARG_TENSOR_SPLIT": "1,2",
        "LLAMA_ARG_MAIN_GPU": "0",
    }
    assert parsed(**environ).placing == Placing(devices=("CUDA0",), gpu_layers=7, split_mode="row", tensor_split=(1.0, 2.0))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-dev", "CUDA0,CUDA0"), "different devices"),
        (("-dev", "none,CUDA0"), "names devices and none"),
        (("-ts", "0,0"), "shares"),
        (("-ts", "1,nan"), "shares"),
        (("-ngl", "many"), "whole number"),
        (("--shadow-max", "much"), "not a size"),
        (("--shadow", "disk"), "file, pinned, pageable"),
    ],
)
def test_values_that_mean_nothing(words: tuple[str, ...], reason: str) -> None:
    """C.1: refused at start, with the reason."""
    with pytest.raises(ConfigError, match=reason):
        parsed(*words)


def test_shadows() -> None:
    """S10: --shadow and its bound, with their environment names."""
    assert (parsed().shadow, parsed().shadow_max_bytes) == ("file", -1)
    assert parsed("--shadow", "pinned", "--shadow-max", "6GiB").shadow_max_bytes == 6 << 30
    assert parsed(LSM_SHADOW="pageable", LSM_SHADOW_MAX="0").shadow == "pageable"


def test_the_list_of_devices(capsys: pytest.CaptureFixture[str]) -> None:
    """C.1: --list-devices prints what --device takes, and ends."""
    assert run(["--list-devices"], {}) == 0
    assert capsys.readouterr().out.startswith("Available devices:\n  ")
