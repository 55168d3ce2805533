"""Devices by name: what is there, what is chosen by default, and what is refused before anything is loaded."""

from __future__ import annotations

import pytest

from lsm.errors import ConfigError
from lsm.native import devices
from lsm.native.library import devices as known_devices
from lsm.tuning import Placing


def device(name: str, type: str = "gpu", backend: str = "CUDA", can_release: bool = True) -> dict[str, object]:
    return {"name": name, "type": type, "backend": backend, "can_release": can_release}


TWO_GPUS = [device("CUDA0"), device("CUDA1"), device("Vulkan0", backend="Vulkan"), device("CPU", "cpu", "CPU")]


def with_devices(monkeypatch: pytest.MonkeyPatch, there: list[dict[str, object]]) -> None:
    monkeypatch.setattr(devices, "known_devices", lambda memory: there)


def test_the_processor_is_a_device_whose_memory_can_leave() -> None:
    """C.1: every device is named, with its backend and whether lsm can use it; no GPU is woken up for that."""
    cpu = next(found for found in known_devices(memory=False) if found["type"] == "cpu")
    assert (cpu["backend"], cpu["can_release"]) == ("CPU", True)
    assert "memory_free_bytes" not in cpu


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (TWO_GPUS, ("CUDA0", "CUDA1")),
        (TWO_GPUS[::-1], ("Vulkan0",)),
        ([device("SYCL0", backend="SYCL", can_release=False), device("CUDA0")], ("CUDA0",)),
        ([device("CUDA0", "igpu"), device("CUDA1")], ("CUDA1",)),
        ([device("CUDA0", "igpu")], ("CUDA0",)),
        ([device("CPU", "cpu", "CPU")], ()),
    ],
)
def test_by_default_every_gpu_of_one_backend(
    monkeypatch: pytest.MonkeyPatch, there: list[dict[str, object]], expected: tuple[str, ...]
) -> None:
    """C.1: no device twice, no integrated one beside others, none whose memory could not leave again."""
    with_devices(monkeypatch, there)
    assert devices.chosen_devices(Placing()) == expected
    assert devices.chosen_devices(Placing(gpu_layers=0)) == ()


@pytest.mark.parametrize(
    ("placing", "reason"),
    [
        (Placing(devices=("CUDA7",)), "CUDA7.*no such device.*CUDA0"),
        (Placing(devices=("SYCL0",)), "SYCL0.*cannot leave"),
        (Placing(split_mode="none", main_gpu=2), "main-gpu 2"),
        (Placing(tensor_split=(1.0, 1.0, 1.0)), "3 shares for 2 devices"),
        (Placing(devices=(), split_mode="tensor"), "needs a GPU"),
    ],
)
def test_what_does_not_fit_the_devices(monkeypatch: pytest.MonkeyPatch, placing: Placing, reason: str) -> None:
    """C.1: a sentence that names the flag, before anything is loaded."""
    with_devices(monkeypatch, [*TWO_GPUS, device("SYCL0", backend="SYCL", can_release=False)])
    with pytest.raises(ConfigError, match=reason):
        devices.chosen_devices(placing)
