"""What could keep a server from working on this machine, found without starting one: each finding with its remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsm.arena.directory import default_directory
from lsm.arena.line import Line
from lsm.config.readers import FilePath
from lsm.errors import ArenaError, BuildError, ConfigError
from lsm.models import ModelFile, find_models, folder_fault, models_directory

OTHER_ARENA = "name another folder with --arena or LSM_ARENA"
MIN_FREE_BYTES = 512 << 20  # a demo model and its wheels


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.  `remedy` is empty where nothing is wrong."""

    subject: str
    text: str
    remedy: str = ""


def examine(environ: Mapping[str, str], arena: str | None = None) -> tuple[Finding, ...]:
    """All findings: build, devices, arena, model files, disk.  `arena`: as --arena of a server.

    Raises nothing; the arena is created if it is missing, as a server would.
    """
    return (*_build(), _arena(environ, arena), *_model_folder(environ))


def _build() -> tuple[Finding, ...]:
    try:
        from lsm.native.library import build_info  # the import itself is what may fail

        info = build_info()
    except (BuildError, ImportError, OSError) as error:
        remedy = "build it here: pip install --force-reinstall --no-deps . in the source tree"
        return (Finding("build", f"the compiled part does not load: {error}", remedy),)
    return (*_build_findings(info), *(_device(device) for device in info["devices"]))


def _build_findings(info: Mapping[str, Any]) -> tuple[Finding, ...]:
    options = " ".join(f"-D{name}={value}" for name, value in info["cmake_options"].items()) or "none"
    made = f"llama.cpp {info['llama_cpp_version']} ({info['llama_cpp_commit']}), {info['compiler']}, CMake options: {options}"
    features = " ".join(info["cpu_features"])
    if not info["using_baseline"]:
        return Finding("build", made), Finding("processor", f"in use: {features}")
    slow = f"this processor cannot run the code that was built; the baseline is in use ({features}), which is slow"
    return Finding("build", made), Finding("processor", slow, "reinstall lsm-server on this machine")


def _device(device: Mapping[str, Any]) -> Finding:
    free, total = device["memory_free_bytes"], device["memory_total_bytes"]
    text = f"{device['name']} ({device['type']}), {device['description']}: {_size(free)} free of {_size(total)}"
    return Finding("device", text if device["can_release"] else f"{text}; not used: its memory cannot leave and come back")


def _arena(environ: Mapping[str, str], given: str | None) -> Finding:
    named = environ.get("LSM_ARENA") or environ.get("LLAMA_VRAM_ARENA") or None if given is None else given
    try:
        path = default_directory(environ) if named is None else FilePath()(named)
        Line(path).close()  # whatever a server would open; no place in the line is taken
    except ValueError as error:
        return Finding("arena", f"{named!r} {error}", OTHER_ARENA)
    except ArenaError as error:
        text, _, remedy = error.message.partition("; ")
        return Finding("arena", text, remedy or OTHER_ARENA)
    return Finding("arena", f"{path} is usable")


def _model_folder(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    try:
        folder = models_directory(environ)
    except ConfigError as error:
        text, _, remedy = error.message.partition(". ")
        return (Finding("models", text, remedy),)
    if fault := folder_fault(folder):
        text = f"no model can be pulled into {folder}: {fault}"
        return (*_model_files(folder), Finding("models", text, "mend that, or name another folder in LSM_MODELS_DIR"))
    return (*_model_files(folder), _disk(folder))


def _model_files(folder: Path) -> tuple[Finding, ...]:
    files = find_models([folder]) if os.path.isdir(folder) else ()
    broken = [Finding("models", f"{file.path} {file.fault}", _remedy(file)) for file in files if file.fault]
    sound = len(files) - len(broken)
    hint = "" if files else " (`lsm pull smollm2` fetches a small one)"
    return Finding("models", f"{sound} in {folder}{hint}"), *broken


def _remedy(file: ModelFile) -> str:
    """Only what is damaged should be deleted; the rest is somebody's, and its fault already says what to do with it."""
    if file.is_damaged:
        return "delete it, or download it again"
    return "do what the sentence says, or move it out of the model folder"


def _disk(folder: Path) -> Finding:
    place = next((place for place in (folder, *folder.absolute().parents) if os.path.isdir(place)), Path("/"))
    free = shutil.disk_usage(place).free
    remedy = "" if free >= MIN_FREE_BYTES else "free some, or name a folder on another disk in LSM_MODELS_DIR"
    return Finding("disk", f"{_size(free)} free for {folder}", remedy)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB"
