"""Which devices hold a model: names into llama.cpp's own, and what cannot be put there."""

from __future__ import annotations

from typing import Any

from lsm.errors import ConfigError
from lsm.native.library import devices as known_devices
from lsm.native.library import ffi, lib
from lsm.native.params import lookup
from lsm.tuning import Placing

__all__ = ["chosen_devices", "encoder_device", "set_placing"]

SPLIT_MODES = {
    "none": lib.LLAMA_SPLIT_MODE_NONE,
    "layer": lib.LLAMA_SPLIT_MODE_LAYER,
    "row": lib.LLAMA_SPLIT_MODE_ROW,
    "tensor": lib.LLAMA_SPLIT_MODE_TENSOR,
}


def chosen_devices(placing: Placing) -> tuple[str, ...]:
    """Names of the GPUs that `placing` means; none: the CPU holds the model.

    By default those of the first backend that has any, integrated ones only where there are no others.

    Raises:
        ConfigError: there is no such device, or what is put there could not leave it again; or the other flags do not fit the devices.
    """
    gpus = [device for device in known_devices(memory=False) if device["type"] in ("gpu", "igpu")]
    if placing.gpu_layers == 0:
        return ()
    names = _default(gpus) if placing.devices is None else placing.devices
    for name in names:
        _check_name(name, gpus)
    if names and placing.split_mode == "none" and placing.main_gpu >= len(names):
        raise ConfigError(f"--main-gpu {placing.main_gpu}: there are {len(names)} devices ({', '.join(names)}), the first is 0")
    if len(placing.tensor_split) > max(len(names), 1):
        raise ConfigError(f"--tensor-split gives {len(placing.tensor_split)} shares for {len(names)} devices")
    if placing.split_mode == "tensor" and not names:
        raise ConfigError("--split-mode tensor needs a GPU")
    return names


def set_placing(params: Any, placing: Placing) -> list[Any]:
    """Write `placing` into llama_model_params; what is returned must live as long as they are used.

    Raises ConfigError: see `chosen_devices`.
    """
    names = chosen_devices(placing)
    by_name = {ffi.string(lib.ggml_backend_dev_name(device)).decode(): device for device in _handles()}
    devices = ffi.new("ggml_backend_dev_t[]", [*(by_name[name] for name in names), ffi.NULL])
    params.devices = devices
    params.n_gpu_layers = placing.gpu_layers
    params.split_mode = lookup(SPLIT_MODES, placing.split_mode, "split_mode")
    params.main_gpu = placing.main_gpu
    if not placing.tensor_split:
        return [devices]
    shares = ffi.new("float[]", lib.llama_max_devices())
    for i, share in enumerate(placing.tensor_split):
        shares[i] = share
    params.tensor_split = shares
    return [devices, shares]


def encoder_device(name: str, placing: Placing) -> Any:
    """The handle of the device that encodes images and sound; null: the CPU.  `name`: "" the model's first GPU, "none" or "CPU" the CPU.

    Raises ConfigError: there is no such device, or what is put there could not leave it again.
    """
    if name in ("none", "CPU"):
        return ffi.NULL
    names = (name,) if name else chosen_devices(placing)[:1]
    for one in names:
        _check_name(one, [device for device in known_devices(memory=False) if device["type"] in ("gpu", "igpu")], "--mmproj-device")
    return next((handle for handle in _handles() if ffi.string(lib.ggml_backend_dev_name(handle)).decode() in names), ffi.NULL)


def _handles() -> list[Any]:
    return [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]


def _default(gpus: list[dict[str, Any]]) -> tuple[str, ...]:
    able = [device for device in gpus if device["can_release"]]
    first = next((device for device in able if device["type"] == "gpu"), able[0] if able else None)
    alike = [device for device in able if first and (device["backend"], device["type"]) == (first["backend"], first["type"])]
    return tuple(device["name"] for device in alike)


def _check_name(name: str, gpus: list[dict[str, Any]], flag: str = "--device") -> None:
    device = next((device for device in gpus if device["name"] == name), None)
    if device is None:
        there_are = ", ".join(device["name"] for device in gpus) or "none"
        raise ConfigError(f"{flag} {name}: there is no such device here; --list-devices names them: {there_are}")
    if not device["can_release"]:
        raise ConfigError(f"{flag} {name}: memory of a {device['backend']} device cannot leave and come back; leave it away")
