"""The one place that loads the compiled module: `from lsm.native.library import ffi, lib`.

Importing it chooses the CPU backend that this processor can run, maps the libraries, and connects the log of llama.cpp to the logger
`lsm.llama`, in this order and once for each process.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lsm.errors import BuildError
from lsm.native.processor import preload_baseline
from lsm.native.waiting import bound_spinning

__all__ = ["build_info", "errors_logged", "ffi", "lib", "set_log_level", "using_baseline"]

MODULE = "lsm.native._native"
LEVEL_FROM_GGML = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}

llama_log = logging.getLogger("lsm.llama")


def library_directory() -> Path:
    """Where the shared libraries, build.json and the self-test were installed: `lib` beside the compiled module.

    Raises:
        BuildError: the compiled module was not built for this interpreter.
    """
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise BuildError(f"{MODULE} is missing: this source tree was not built. Run 'pip install .' or 'pip install -e .' in it.")
    return Path(spec.origin).parent / "lib"


def _load() -> tuple[Any, Any, bool]:
    bound_spinning()
    baseline = preload_baseline(library_directory())
    try:
        module = importlib.import_module(MODULE)
    except ImportError as error:
        raise BuildError(f"{MODULE} does not load: {error}. Reinstall lsm-server on this machine.") from error
    return module.ffi, module.lib, baseline


ffi, lib, using_baseline = _load()


@ffi.def_extern(name="lsm_on_log_line")  # type: ignore[untyped-decorator]
def _on_log_line(level: int, line: Any) -> None:
    """Called by C from any thread: nothing may be raised here."""
    try:
        llama_log.log(LEVEL_FROM_GGML.get(level, logging.INFO), "%s", ffi.string(line).decode("utf-8", "replace"))
    except BaseException:  # a handler of the application failed; an exception cannot cross C, and a lost line is the least harm
        pass


class _Errors(logging.Handler):
    """Keeps what the thread that made it logs as errors."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.lines = lines
        self.thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread:
            self.lines.append(record.getMessage().strip())


@contextmanager
def errors_logged() -> Iterator[list[str]]:
    """The lines that llama.cpp logs as errors on this thread inside: why it refused, where a function says no more than that it did."""
    handler = _Errors([])
    llama_log.addHandler(handler)
    try:
        yield handler.lines
    finally:
        llama_log.removeHandler(handler)


def set_log_level(level: int) -> None:
    """Let lines of llama.cpp through from this `logging` level on. It starts with WARNING; lower levels tell a lot, and cost it."""
    llama_log.setLevel(level)
    passing = [ours for ours, theirs in LEVEL_FROM_GGML.items() if theirs >= level]
    lib.lsm_log_set_min_level(min(passing, default=max(LEVEL_FROM_GGML) + 1))


def _connect_log() -> None:
    set_log_level(llama_log.level or logging.WARNING)
    lib.lsm_log_start(lib.lsm_on_log_line)
    atexit.register(lib.lsm_log_stop)  # libraries may log while the process ends, when no Python can run any more


_connect_log()


def devices(*, memory: bool = True) -> list[dict[str, Any]]:
    """Every device ggml can use.

    name, description, backend, type (cpu, gpu, igpu, accel, other), can_release (whether what it holds can leave and come back); with
    `memory` also memory_free_bytes and memory_total_bytes, for which a GPU has to be woken up and keeps some hundred megabytes.
    """
    found = [lib.ggml_backend_dev_get(index) for index in range(lib.ggml_backend_dev_count())]
    return [_device(device) | (_memory(device) if memory else {}) for device in found]


def _memory(device: Any) -> dict[str, int]:
    free, total = ffi.new("size_t *"), ffi.new("size_t *")
    lib.ggml_backend_dev_memory(device, free, total)
    return {"memory_free_bytes": free[0], "memory_total_bytes": total[0]}


def _device(device: Any) -> dict[str, Any]:
    types = {
        lib.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu",
        lib.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
        lib.GGML_BACKEND_DEVICE_TYPE_IGPU: "igpu",
        lib.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
    }
    return {
        "name": _text(lib.ggml_backend_dev_name(device)),
        "description": _text(lib.ggml_backend_dev_description(device)),
        "type": types.get(lib.ggml_backend_dev_type(device), "other"),
        "backend": _text(lib.ggml_backend_reg_name(lib.ggml_backend_dev_backend_reg(device))),
        "can_release": bool(lib.lsm_device_can_release(device)),
    }


def _text(pointer: Any) -> str:
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def build_info() -> dict[str, Any]:
    """What was built and what it finds here: versions, compiler, CMake options, CPU features in use, devices."""
    built: dict[str, Any] = json.loads((library_directory() / "build.json").read_text())
    return built | {
        "llama_cpp_version": _text(lib.llama_version()),
        "using_baseline": using_baseline,
        "cpu_features": ["SSE42"] if using_baseline else built["cpu_features"],
        "system_info": _text(lib.llama_print_system_info()),
        "devices": devices(),
    }
