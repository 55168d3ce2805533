"""What `--version` and `--list-devices` say."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from lsm.errors import BuildError


def version_text() -> str:
    """Our version and the one of llama.cpp, or why there is none."""
    from lsm.api import build_info

    try:
        ours = version("lsm-server")
    except PackageNotFoundError:  # run from a source tree that was never installed
        ours = "not installed"
    try:
        info = build_info()
    except BuildError as error:
        return f"lsm-server {ours} (llama.cpp: {error.message})"
    return f"lsm-server {ours} (llama.cpp {info['llama_cpp_version']}, {info['llama_cpp_commit']})"


def devices_text() -> str:
    """The GPUs, as `--device` takes their names; what `lsm-server` cannot use is marked."""
    from lsm.api import build_info

    lines = [_device_line(device) for device in build_info()["devices"] if device["type"] != "cpu"]
    return "\n".join(["Available devices:", *(lines or ["  (none)"])])


def _device_line(device: Mapping[str, Any]) -> str:
    total, free = device["memory_total_bytes"] >> 20, device["memory_free_bytes"] >> 20
    unfit = "" if device["can_release"] else ", cannot be used: its memory cannot leave and come back"
    return f"  {device['name']}: {device['description']} ({total} MiB, {free} MiB free){unfit}"
