"""Builds llama-server of the pinned source, to compare with: `make peer`.  Prints where it is.

It is linked with the libraries that lsm itself uses, so the two differ in nothing but the server around them.  The result is kept in
the cache of the build, keyed as those libraries are.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from cffi_build import guard, llama_source
from cffi_build.llama_build import cache_directory, ensure_prefix, exclusive, launchers
from cffi_build.recipe import BuildRefused, make_recipe

HERE = Path(__file__).parent
PARTS = ("common/", "scripts/ui-assets.cmake", "tools/server/", "tools/ui/", "vendor/cpp-httplib/")  # beside what lsm is built from


def main() -> int:
    try:
        print(f"export LSM_PEER_LLAMA_SERVER={ensure_peer(os.environ)}")
    except (BuildRefused, llama_source.SourceError) as error:
        print(f"lsm: {error}", file=sys.stderr)
        return 1
    return 0


def ensure_peer(environ: Mapping[str, str]) -> Path:
    """The program, built if it is not in the cache yet.

    Raises:
        BuildRefused, llama_source.SourceError: with a message for the user.
    """
    arguments = shlex.split(environ.get("CMAKE_ARGS", ""))
    prefix, recipe, cache = ensure_prefix(arguments, environ), make_recipe(arguments, environ), cache_directory(environ)
    how = hashlib.sha256((HERE / "CMakeLists.txt").read_bytes()).hexdigest()[:8]
    program = cache / f"peer-{recipe.key}-{how}"
    with exclusive(cache / "peer.lock"):
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as scratch:
                built = build(locate(Path(scratch), environ), prefix, Path(scratch, "build"), launchers(recipe.options, environ))
                shutil.copy(built, Path(scratch, "llama-server"))
                Path(scratch, "llama-server").rename(program)
    return program


def locate(scratch: Path, environ: Mapping[str, str]) -> Path:
    """The source with the server: LSM_LLAMA_CPP_DIR, which `ensure_prefix` has checked, or the pinned archive once more."""
    if given := environ.get("LSM_LLAMA_CPP_DIR"):
        return Path(given).expanduser().resolve()
    source = scratch / "source"
    source.mkdir()
    llama_source.fetch(source, lambda path: path.startswith(PARTS) or llama_source.is_needed(path))
    return source


def build(source: Path, prefix: Path, folder: Path, options: Mapping[str, str]) -> Path:
    ours = {"CMAKE_BUILD_TYPE": "Release", "LSM_LLAMA_CPP_SOURCE": str(source), "LSM_NATIVE_PREFIX": str(prefix)}
    configure = ["cmake", "-S", str(HERE), "-B", str(folder), *(f"-D{name}={value}" for name, value in {**options, **ours}.items())]
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    for command in (configure, ["cmake", "--build", str(folder), "--target", "llama-server", "--parallel", jobs]):
        if guard.run(command, os.environ):
            raise BuildRefused(f"llama-server did not build; the failed command was: {shlex.join(command)}")
    return folder / "tools/server/llama-server"


if __name__ == "__main__":
    sys.exit(main())
