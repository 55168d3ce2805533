"""Vulkan: a device that promises no addresses, through llama.cpp's own backend. `make test-vulkan` builds for it and runs this.

Without a GPU Mesa's lavapipe will do, a Vulkan device in software; llama.cpp takes it only where GGML_VK_VISIBLE_DEVICES names it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lsm.errors import DeviceMemoryError
from lsm.native.adapter import Adapter
from lsm.native.library import devices, lib
from lsm.native.model import Model
from tests.native.measure_rss import rss_bytes
from tests.native.runner import ALL, Runner, cycle, open_context, prompt_tokens, story
from tests.native.test_cycles import TINY
from tests.tiny_adapters import write_lora
from tests.tiny_models import write_llama

ON_DEVICE = [device for device in devices() if device["name"].startswith("Vulkan")]

SHORT = {"n_prompt": 12, "n_steps": 1}  # a software device is slow
MOVING = ("weights", "kv")

pytestmark = pytest.mark.skipif(not ON_DEVICE, reason="no Vulkan device: see `make test-vulkan`")


@pytest.mark.slow
@pytest.mark.parametrize("classes", [("weights",), ("kv",), MOVING], ids="+".join)
@pytest.mark.parametrize("architecture", sorted(TINY))
def test_memory_comes_back_bit_for_bit(tmp_path: Path, owner: int, architecture: str, classes: tuple[str, ...]) -> None:
    """S9, S10: five cycles within one story, for each kind of memory; a buffer of its own on the device for each class."""
    with Model.load(TINY[architecture](tmp_path / "model.gguf"), owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None, **SHORT)
        assert all(model.memory.bytes(name).device for name in ALL)
        assert story(model, context, cycle(model, context, *classes), **SHORT).same_as(undisturbed)


@pytest.mark.slow
def test_compute_buffers_stay(tmp_path: Path, owner: int) -> None:
    """Decisions: llama.cpp itself corrupts the heap on Mesa's software device when it makes them anew; so they are left where they are."""
    with Model.load(write_llama(tmp_path / "model.gguf"), owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None, **SHORT)

        def pause() -> None:
            model.memory.release(*ALL)
            assert model.memory.resident("compute") and model.memory.bytes("compute").device > 0
            assert not any(model.memory.resident(name) for name in MOVING)
            model.memory.restore(*ALL)

        assert story(model, context, pause, **SHORT).same_as(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_real_models_come_back_bit_for_bit(real_model: Callable[[str], Path], owner: int, name: str) -> None:
    """S9, S10: quantized weights as the device has them are those of the file, so it is their only copy."""
    with Model.load(real_model(name), owner) as model:
        context = open_context(model, n_ctx=1536)
        undisturbed = story(model, context, lambda: None, **SHORT)
        assert story(model, context, cycle(model, context, *MOVING), **SHORT).same_as(undisturbed)
        model.memory.release(*ALL)
        weights = model.memory.bytes("weights")
        assert (weights.device, weights.host) == (0, 0) and weights.file == pytest.approx(weights.released, rel=0.01)


@pytest.mark.slow
def test_a_restore_that_fails_half_way_changes_nothing(tmp_path: Path, owner: int) -> None:
    """S10: each allocation refused in turn."""
    with Model.load(write_llama(tmp_path / "model.gguf"), owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None, **SHORT)
        failures = 0

        def pause() -> None:
            nonlocal failures
            model.memory.release(*ALL)
            for n in range(2):
                lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, n)
                with pytest.raises(DeviceMemoryError):
                    model.memory.restore(*ALL)
                assert not any(model.memory.bytes(name).device for name in MOVING)
                failures += 1
            model.memory.restore(*ALL)

        assert story(model, context, pause, **SHORT).same_as(undisturbed)
        assert failures == 10


@pytest.mark.slow
def test_adapters_come_and_go(tmp_path: Path, owner: int) -> None:
    """S10: LoRA on the device."""
    with Model.load(write_llama(tmp_path / "model.gguf"), owner) as model:
        adapter = Adapter.load(model, write_lora(tmp_path / "lora.gguf"))
        with open_context(model) as context:
            plain = story(model, context, lambda: None, **SHORT)
        context = open_context(model)  # before its first batch, since this makes its compute buffers anew
        context.set_adapters([(adapter, 1.0)])
        undisturbed = story(model, context, lambda: None, **SHORT)
        assert not undisturbed.same_as(plain)
        assert story(model, context, cycle(model, context, *MOVING, "adapters"), **SHORT).same_as(undisturbed)


@pytest.mark.slow
@pytest.mark.skipif(not any("llvmpipe" in device["description"] for device in ON_DEVICE), reason="this device has memory of its own")
def test_memory_is_really_given_back(tmp_path: Path, owner: int) -> None:
    """S9: of a device in software, as the kernel counts the memory of this process."""
    with Model.load(write_llama(tmp_path / "model.gguf", n_layer=16), owner) as model:
        context = open_context(model, n_ctx=4096, n_seq_max=1, n_batch=64, type_k="f32", type_v="f32", flash_attn="off")
        Runner(model, context).prompt(0, prompt_tokens(model, 40, 1))
        kv = model.memory.bytes("kv").device
        assert kv > 32 << 20  # what is smaller, the C library may keep for itself
        here = rss_bytes()
        model.memory.release("kv")
        away = rss_bytes()
        assert here - away >= 0.8 * kv
        model.memory.restore("kv")
        assert rss_bytes() - away >= 0.8 * kv
