"""The PEP 517 backend: scikit-build-core, with llama.cpp built (or found in the cache) before it starts.

What users of llama-cpp-python know works here too: `CMAKE_ARGS="-DGGML_CUDA=on" pip install .` and `pip install . -C cmake.args=...`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from scikit_build_core import build as scikit

from .llama_build import ensure_prefix
from .llama_source import SourceError
from .recipe import BuildRefused

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def sentences() -> Iterator[None]:
    """What the user has to mend, without a traceback around it."""
    try:
        yield
    except (BuildRefused, SourceError) as error:
        raise SystemExit(f"\nlsm: {error}\n") from None


def hook(scikits: Callable[P, R]) -> Callable[P, R]:
    """A hook of scikit-build-core, which reads CMAKE_ARGS in each of them and expects that they can be read."""

    @wraps(scikits)
    def checked(*arguments: P.args, **named: P.kwargs) -> R:
        with sentences():
            cmake_arguments({}, os.environ)
        return scikits(*arguments, **named)

    return checked


build_sdist = hook(scikit.build_sdist)
get_requires_for_build_editable = hook(scikit.get_requires_for_build_editable)
get_requires_for_build_sdist = hook(scikit.get_requires_for_build_sdist)
get_requires_for_build_wheel = hook(scikit.get_requires_for_build_wheel)
prepare_metadata_for_build_editable = hook(scikit.prepare_metadata_for_build_editable)
prepare_metadata_for_build_wheel = hook(scikit.prepare_metadata_for_build_wheel)


def build_wheel(wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    return scikit.build_wheel(wheel_directory, with_prefix(config_settings), metadata_directory)


def build_editable(wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    return scikit.build_editable(wheel_directory, with_prefix(config_settings), metadata_directory)


def with_prefix(config_settings: Settings | None) -> Settings:
    """Run phase 1 and tell phase 2 where its result is."""
    settings = dict(config_settings or {})
    with sentences():
        prefix = ensure_prefix(cmake_arguments(settings, os.environ), os.environ)
    # For phase 2: ccache shall know the shim and the extension again in another checkout.
    os.environ.setdefault("CCACHE_BASEDIR", str(Path(__file__).parents[1]))
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    return settings | {"cmake.define.LSM_NATIVE_PREFIX": str(prefix)}


def cmake_arguments(settings: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """CMake's arguments from CMAKE_ARGS and from pip's -C cmake.args (semicolons between them) and -C cmake.define.NAME.

    Raises BuildRefused: CMAKE_ARGS has an open quotation mark.
    """
    try:
        from_environment = shlex.split(environ.get("CMAKE_ARGS", ""))
    except ValueError as error:
        raise BuildRefused(f"CMAKE_ARGS={environ['CMAKE_ARGS']}: {error}. Close the quotation mark, or leave it away.") from None
    given = settings.get("cmake.args", [])
    listed = given.split(";") if isinstance(given, str) else [word for text in given for word in text.split(";")]
    prefix = "cmake.define."
    defined = [f"-D{name.removeprefix(prefix)}={value}" for name, value in settings.items() if name.startswith(prefix)]
    return [*from_environment, *(word for word in listed if word), *defined]
