"""Phase 1 of the build: the pinned llama.cpp, compiled once for each combination of source, flags and compiler.

The result is a prefix in the user's cache, outside the checkout, which every later `pip install` finds within a second:

    native-<key>/include/            the public headers
    native-<key>/lib/                one file for each library, the self-test of the processor, build.json, the licenses
    native-<key>/lib/baseline/       the CPU backend once more, for processors that fail the self-test

A prefix appears by one rename when it is complete; work in progress stands in directories that the next build sweeps away.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import cpu_flags, guard, llama_source
from .recipe import BuildRefused, Recipe, c_compiler, describe, make_recipe

HERE = Path(__file__).parent

# Options that make no difference to the baseline CPU backend and would only make its build longer.
OTHER_BACKENDS = re.compile(r"GGML_(CUDA|HIP|MUSA|VULKAN|SYCL|METAL|RPC|BLAS)(_|$)")


def cache_directory(environ: Mapping[str, str]) -> Path:
    """LSM_CACHE_DIR, else lsm-server below the user's cache directory."""
    if given := environ.get("LSM_CACHE_DIR"):
        return Path(given).expanduser().absolute()
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lsm-server"


def ensure_prefix(arguments: Sequence[str], environ: Mapping[str, str]) -> Path:
    """The prefix for these arguments to CMake, built if it is not in the cache yet.

    Raises:
        BuildRefused, llama_source.SourceError: with a message for the user.
    """
    if sys.platform != "linux":
        raise BuildRefused(f"lsm builds on Linux; this is {sys.platform}")
    recipe = make_recipe(arguments, environ)
    cache = cache_directory(environ)
    make_writable(cache)
    prefix = cache / f"native-{recipe.key}"
    with exclusive(cache / "build.lock"):
        if environ.get("LSM_LLAMA_CPP_DIR") or not prefix.is_dir():
            source = llama_source.locate(cache, environ)  # a given tree is checked even when its result is cached already
        if not prefix.is_dir():
            sweep(cache)
            with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as scratch:
                staging = build(recipe, source, Path(scratch), environ)
                staging.rename(prefix)
    return prefix


def make_writable(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "build.lock").touch()
    except OSError as error:
        raise BuildRefused(
            f"the build cache {cache} cannot be written ({error.strerror}). Set LSM_CACHE_DIR to a directory that can."
        ) from None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a file lock: of two installs at once, one builds and the other finds the result."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"lsm: waiting for another build ({path})", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep(cache: Path) -> None:
    """Remove what killed builds left. The caller holds the lock, so none of it is in use."""
    for pattern in ("building-*", "unpack-*"):
        for leftover in cache.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def build(recipe: Recipe, source: Path, scratch: Path, environ: Mapping[str, str]) -> Path:
    """Compile and install into `scratch`/prefix."""
    print(f"lsm: building llama.cpp {recipe.commit} with {', '.join(recipe.features) or 'no CPU features'}", file=sys.stderr, flush=True)
    prefix = scratch / "prefix"
    lib = prefix / "lib"
    run_cmake(recipe, source, scratch / "main", prefix, recipe.options, environ)
    copy_headers(source, prefix / "include")
    if recipe.features:
        build_fallback(recipe, source, scratch, lib, environ)
    copy_licenses(source, lib / "licenses")
    (lib / "build.json").write_text(json.dumps(describe(recipe), indent=2) + "\n")
    return prefix


def copy_headers(source: Path, include: Path) -> None:
    """The public headers, and beside them internal ones: what the shim does, no public interface offers."""
    for directory, pattern, target in (
        ("include", "*.h", include),
        ("ggml/include", "*.h", include),
        ("tools/mtmd", "mtmd*.h", include),
        ("ggml/src", "*.h", include / "internal"),
        ("src", "llama-*.h", include / "internal"),
    ):
        target.mkdir(parents=True, exist_ok=True)
        for header in (source / directory).glob(pattern):
            shutil.copy(header, target)


def copy_licenses(source: Path, target: Path) -> None:
    """The license of llama.cpp and of everything it brings along: they go where the libraries go."""
    target.mkdir()
    for license_file in source.rglob("LICENSE*"):
        owner = "llama.cpp" if license_file.parent == source else license_file.parent.name
        shutil.copy(license_file, target / (license_file.name if owner == "licenses" else f"LICENSE-{owner}"))


def build_fallback(recipe: Recipe, source: Path, scratch: Path, lib: Path, environ: Mapping[str, str]) -> None:
    """The self-test with the flags of the main build, and the CPU backend that is used where the self-test dies."""
    self_test = lib / "cpu-self-test"
    if not cpu_flags.build_self_test(c_compiler(recipe.options, environ), cpu_flags.compiler_flags(recipe.features), self_test):
        raise BuildRefused(f"the compiler cannot build {cpu_flags.SELF_TEST.name} for {', '.join(recipe.features)}")
    host_only = {name: value for name, value in recipe.options.items() if not OTHER_BACKENDS.match(name)}
    options = host_only | cpu_flags.cmake_options(cpu_flags.BASELINE) | {"LSM_CPU_BACKEND_ONLY": "ON"}
    run_cmake(recipe, source, scratch / "fallback", scratch / "fallback-prefix", options, environ, rpath="$ORIGIN/..")
    shutil.copytree(scratch / "fallback-prefix/lib", lib / "baseline")


def run_cmake(
    recipe: Recipe,
    source: Path,
    build_directory: Path,
    prefix: Path,
    options: Mapping[str, str],
    environ: Mapping[str, str],
    rpath: str = "$ORIGIN",
) -> None:
    """Configure, build and install the wrapper project in llama/."""
    ours = {
        "LSM_LLAMA_CPP_SOURCE": str(source),
        "LSM_SONAME_VERSION": recipe.commit,
        "LSM_RPATH": rpath,
        "LLAMA_BUILD_COMMIT": recipe.commit,
        "GIT_EXE": "",  # ggml would ask git for its commit, and the nearest repository may be the user's home directory
        "CMAKE_INSTALL_PREFIX": str(prefix),
    }
    if not shutil.which("cmake"):
        raise BuildRefused("cmake is not installed. Install it, or let pip do so: leave out --no-build-isolation.")
    configure = ["cmake", "-S", str(HERE / "llama"), "-B", str(build_directory), *recipe.extra_arguments]
    if shutil.which("ninja") and not any(word.startswith("-G") for word in recipe.extra_arguments):
        configure += ["-G", "Ninja"]
    configure += [f"-D{name}={value}" for name, value in {**launchers(options, environ), **options, **ours}.items()]
    jobs = environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    variables = {**environ, "CCACHE_BASEDIR": environ.get("CCACHE_BASEDIR", str(build_directory.parent.parent)), "CCACHE_NOHASHDIR": "1"}
    for command in (
        configure,
        ["cmake", "--build", str(build_directory), "--target", "lsm_libraries", "--parallel", jobs],
        ["cmake", "--install", str(build_directory), "--component", "lsm", "--strip"],
    ):
        if guard.run(command, variables):
            raise BuildRefused(f"llama.cpp did not build; the failed command was: {shlex.join(command)}")


def launchers(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """ccache for every language of the build, where it is installed and CMake was told nothing else."""
    if not shutil.which("ccache"):
        return {}
    languages = ["C", "CXX"] + ["CUDA"] * cpu_flags.is_on(options.get("GGML_CUDA", ""))
    names = [f"CMAKE_{language}_COMPILER_LAUNCHER" for language in languages]
    return {name: "ccache" for name in names if name not in environ}
