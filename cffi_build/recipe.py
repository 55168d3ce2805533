"""What decides how llama.cpp is compiled: our defaults, what this processor runs, what the user asked for, and the compiler."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import cpu_flags, llama_source

LAYOUT = 3  # raise it when llama_build.py changes what it puts into a prefix
INPUTS = (llama_source.MANIFEST, cpu_flags.SELF_TEST, Path(__file__).with_name("llama") / "CMakeLists.txt")

# What we ask for unless the user says otherwise. OpenMP, because the waiting of its threads can be bounded (`lsm.native.waiting`): those of
# ggml's own pool spin until all have come, and on a busy machine a token takes a hundred times as long.
DEFAULTS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "ON",
    "GGML_CCACHE": "OFF",
    "LLAMA_BUILD_COMMON": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TOOLS": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_ALL_WARNINGS": "OFF",
}
# Options that would give a library which cannot work here, each with what to do instead.
REFUSED = {
    ("GGML_NATIVE", True): "it trusts the processor's own list of features, which virtual machines get wrong; "
    "leave it out: the build runs one instruction of each feature and uses those that work",
    ("BUILD_SHARED_LIBS", False): "the wheel holds shared libraries; leave it out",
    ("GGML_BACKEND_DL", True): "backends are linked; leave it out: a second CPU backend for older processors is built anyway",
    ("GGML_CPU_ALL_VARIANTS", True): "it needs GGML_BACKEND_DL, which lsm does not use; leave it out",
    **{(f"GGML_{name}", True): "AMX kernels die in virtual machines that advertise AMX without running it" for name in cpu_flags.NEVER},
}
ENVIRONMENT = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CUDACXX", "CUDAFLAGS", "CUDAARCHS", "HIPCXX", "CMAKE_PREFIX_PATH")


# CMake's options that may stand apart from their value; all others are one word.
TAKE_A_VALUE = ("-A", "-C", "-G", "-T", "-U", "--preset", "--toolchain")
OURS = ("-B", "-S", "--install-prefix")


class BuildRefused(Exception):
    """What was asked for cannot be built. The message names the option and the remedy."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out: equal recipes give equal prefixes."""

    commit: str
    source_digest: str
    options: Mapping[str, str]
    features: tuple[str, ...]
    extra_arguments: tuple[str, ...]
    compiler: str
    environment: Mapping[str, str]
    layout: int = LAYOUT

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:16]


def parse_cmake_arguments(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split CMake's command line into its -D options and the rest.

    Raises:
        BuildRefused: an option that lsm cannot be built with.
    """
    options: dict[str, str] = {}
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        definition = next(words, "") if word == "-D" else word.removeprefix("-D") if word.startswith("-D") else None
        if definition is None:
            rest += _other_option(word, words)
            continue
        name, equals, value = definition.partition("=")
        if not equals:
            raise BuildRefused(f"CMAKE_ARGS: '{word}' has no value; write -DNAME=VALUE")
        options[name.partition(":")[0]] = value
    for name, value in options.items():
        if reason := REFUSED.get((name, cpu_flags.is_on(value))):
            raise BuildRefused(f"CMAKE_ARGS: -D{name}={value} is refused: {reason}.")
    return options, rest


def _other_option(word: str, following: Iterator[str]) -> list[str]:
    if not word.startswith("-"):
        raise BuildRefused(f"CMAKE_ARGS: '{word}' is not an option of CMake; write -DNAME=VALUE")
    if word.startswith(OURS):
        raise BuildRefused(f"CMAKE_ARGS: '{word}' is refused: lsm chooses where it builds; leave it out.")
    if word not in TAKE_A_VALUE:
        return [word]
    value = next(following, "")
    if not value or value.startswith("-"):
        raise BuildRefused(f"CMAKE_ARGS: '{word}' has no value")
    return [word, value]


def c_compiler(options: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """The C compiler that CMake will choose."""
    return [options["CMAKE_C_COMPILER"]] if "CMAKE_C_COMPILER" in options else shlex.split(environ.get("CC") or "cc")


def compiler_identity(compiler: Sequence[str]) -> str:
    """First line of the compiler's version and its target; raises BuildRefused where there is none."""
    try:
        version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        target = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise BuildRefused(
            f"no C compiler: '{shlex.join(compiler)}' does not run ({error}). Install gcc and g++ (or set CC and CXX)."
        ) from None
    return f"{version} [{target}]"


def make_recipe(arguments: Sequence[str], environ: Mapping[str, str]) -> Recipe:
    """Decide all flags: ours, what the processor runs, what the user wants (the user's word is last)."""
    wishes, rest = parse_cmake_arguments(arguments)
    compiler = c_compiler(wishes, environ)
    identity = compiler_identity(compiler)
    features: list[str] = []
    options = dict(DEFAULTS)
    if cpu_flags.is_x86_64(compiler):
        features = cpu_flags.requested_features(cpu_flags.usable_features(cpu_flags.probe_by_running(compiler)), wishes)
        options |= cpu_flags.cmake_options(features)
    return Recipe(
        commit=llama_source.pinned_requirement()[2],
        source_digest=hashlib.sha256(b"".join(path.read_bytes() for path in INPUTS)).hexdigest(),
        options=options | {name: value for name, value in wishes.items() if name not in cpu_flags.cmake_options(())},
        features=tuple(features),
        extra_arguments=tuple(rest),
        compiler=identity,
        environment={name: environ[name] for name in ENVIRONMENT if name in environ},
    )


def describe(recipe: Recipe) -> dict[str, object]:
    """What build_info() tells about a build; it travels in the wheel, so without CMake's own options: they hold paths."""
    changed = {name: value for name, value in recipe.options.items() if DEFAULTS.get(name) != value and not name.startswith("CMAKE_")}
    return {
        "llama_cpp_commit": recipe.commit,
        "key": recipe.key,
        "compiler": recipe.compiler,
        "cpu_features": list(recipe.features),
        "cmake_options": {name: value for name, value in changed.items() if name not in cpu_flags.cmake_options(())},
    }
