"""Settings of images and sound: projectors, their device, where media may come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.config import Settings, parse_arguments
from lsm.errors import ConfigError
from lsm.runtime.engine_settings import engine_config


def parse(*words: str, **environ: str) -> Settings:
    return parse_arguments(["-m", "a.gguf", *words], environ)


def test_a_projector_goes_with_its_model() -> None:
    """C.5: one for each model, in their order; none for one without."""
    settings = parse("--mmproj", "p.gguf")
    assert [source.projector for source in settings.models] == [Path("p.gguf")]
    settings = parse("-m", "b.gguf", "-mm", "none", "-mm", "q.gguf")
    assert [source.projector for source in settings.models] == [None, Path("q.gguf")]
    assert [source.projector for source in parse("--mmproj", "p.gguf", "--no-mmproj").models] == [None]
    assert [source.projector for source in parse(LLAMA_ARG_MMPROJ="p.gguf").models] == [Path("p.gguf")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "b.gguf", "--mmproj", "p.gguf"], "1 projectors for 2 models"),
        (["--mmproj-device", "CUDA0,CUDA1"], "only one device may be specified for mmproj"),
        (["--mmproj-device", " "], "not one device"),
        (["--mmproj-device", "CUDA0", "--no-mmproj-offload"], "leave one of them away"),
        (["--image-min-tokens", "9", "--image-max-tokens", "5"], "is more than"),
        (["--image-max-tokens", "0"], "--image-max-tokens"),
        (["--media-path", "/does/not/exist"], "there is no such folder"),
        (["--mmproj-url", "x"], "Name the projector with --mmproj FILE"),
        (["--video-fps", "4"], "video"),
    ],
)
def test_what_cannot_be_right_is_refused(words: list[str], message: str) -> None:
    """C.5, S24: with the flag and the remedy."""
    with pytest.raises(ConfigError, match=message):
        parse(*words)


@pytest.mark.parametrize(
    ("words", "environ", "device"),
    [
        ([], {}, ""),
        (["--mmproj-device", "none"], {}, "none"),
        (["--no-mmproj-offload"], {}, "none"),
        ([], {"MTMD_BACKEND_DEVICE": "Vulkan0"}, "Vulkan0"),
        (["-mmdev", "CUDA1"], {"MTMD_BACKEND_DEVICE": "Vulkan0"}, "CUDA1"),
    ],
)
def test_the_device_of_the_encoder(words: list[str], environ: dict[str, str], device: str) -> None:
    """S24: none is the CPU, the flag goes before the environment, and by default it is the model's device."""
    settings = parse("--mmproj", "p.gguf", *words, **environ)
    projector = engine_config(settings.models[0], settings).projector
    assert projector is not None and projector.device == device


@pytest.mark.parametrize("environ", [{"LLAMA_MMPROJ_ONDEMAND": "1"}, {"LSM_MMPROJ_ONDEMAND": "on"}])
def test_on_demand_by_the_name_that_servers_know(environ: dict[str, str]) -> None:
    """S5: LLAMA_MMPROJ_ONDEMAND=1."""
    settings = parse("--mmproj", "p.gguf", "--image-max-tokens", "64", "--mtmd-batch-max-tokens", "99", **environ)
    projector = engine_config(settings.models[0], settings).projector
    assert projector is not None and projector.on_demand
    assert (projector.image_max_tokens, projector.image_min_tokens, projector.batch_max_tokens) == (64, -1, 99)
    assert engine_config(parse().models[0], parse()).projector is None
