"""The pinned source of llama.cpp: where it comes from, and the proof that it is the pinned one.

It travels inside the source distribution of llama-cpp-python, which any package index can serve. `llama_cpp.lock` pins that archive;
`llama_cpp.sha256` (the format of sha256sum) pins every file that the build may read, so that a local tree is held to the same standard.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from . import guard

HERE = Path(__file__).parent
LOCK = HERE / "llama_cpp.lock"
MANIFEST = HERE / "llama_cpp.sha256"
MEMBER_ROOT = "vendor/llama.cpp/"

NEEDED = (
    "CMakeLists.txt",
    "LICENSE",
    "cmake/",
    "ggml/",
    "include/",
    "licenses/",
    "src/",
    "tools/mtmd/",
    "vendor/CMakeLists.txt",
    "vendor/hash/",
    "vendor/miniaudio/",
    "vendor/nlohmann/",
    "vendor/sheredom/",
    "vendor/stb/",
)
# Backends that llama-cpp-python's users are not told about either, and the test data of mtmd: 800 files that nobody would compile.
NOT_NEEDED = (
    *(f"ggml/src/ggml-{name}/" for name in ("cann", "et", "hexagon", "opencl", "openvino", "virtgpu", "webgpu", "zdnn", "zendnn")),
    "tools/mtmd/tests",
    "tools/mtmd/test-",
    "tools/mtmd/legacy-models/",
    "tools/mtmd/debug/mtmd-debug.md",
)


class SourceError(Exception):
    """The source is missing or is not the pinned one. The message names the file and the remedy."""


def is_needed(path: str) -> bool:
    """Whether the build may read this file; `path` is relative to the root of llama.cpp."""
    return path.startswith(NEEDED) and not path.startswith(NOT_NEEDED)


def pinned_requirement(lock: Path = LOCK) -> tuple[str, str, str]:
    """(requirement, sha256 of the archive, commit of llama.cpp) as the lock file states them."""
    text = lock.read_text()
    commit = re.search(r"llama\.cpp@(\w+)", text)
    requirement = re.search(r"^(\S+==\S+) --hash=sha256:([0-9a-f]{64})$", text, re.M)
    if not commit or not requirement:
        raise SourceError(f"{lock.name}: expected a comment with llama.cpp@COMMIT and one line NAME==VERSION --hash=sha256:HEX")
    return requirement[1], requirement[2], commit[1]


def read_manifest(manifest: Path = MANIFEST) -> dict[str, str]:
    """File name to sha256, as written by `sha256sum`."""
    lines = (line.split("  ", 1) for line in manifest.read_text().splitlines())
    return {name: digest for digest, name in lines}


def digest_tree(root: Path) -> dict[str, str]:
    """File name to sha256 for every needed file under `root`."""
    names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names if is_needed(name)}


def check_tree(root: Path, expected: Mapping[str, str]) -> None:
    """Raise SourceError unless every expected file is there with the expected content. Further files do not matter."""
    wrong = [f"{name} ({problem})" for name, digest in expected.items() if (problem := _problem(root / name, digest))]
    if wrong:
        shown = "\n  ".join(wrong[:5]) + (f"\n  ... and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        requirement, _, commit = pinned_requirement()
        raise SourceError(
            f"{root} is not the pinned llama.cpp (commit {commit}, as in {requirement}):\n  {shown}\n"
            "Check out that commit there, or unset LSM_LLAMA_CPP_DIR to let the build fetch it."
        )


def _problem(path: Path, digest: str) -> str:
    try:
        return "" if hashlib.sha256(path.read_bytes()).hexdigest() == digest else "differs"
    except OSError:
        return "missing"


def unpack(archive: Path, sha256: str, destination: Path, wanted: Callable[[str], bool] = is_needed) -> None:
    """Unpack the wanted files of the archive into `destination`, after checking the archive's hash.

    Raises:
        SourceError: the archive is not the pinned one.
    """
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise SourceError(f"{archive.name}: sha256 is {found}, but {LOCK.name} pins {sha256}. Delete it and fetch it again.")
    prefix = archive.name.removesuffix(".tar.gz") + "/" + MEMBER_ROOT
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.startswith(prefix) and wanted(member.name.removeprefix(prefix)):
                member.name = member.name.removeprefix(prefix)
                tar.extract(member, destination, filter="data")


def fetch(destination: Path, wanted: Callable[[str], bool] = is_needed) -> None:
    """Download the pinned archive through pip (its index, proxy and certificate settings apply) and unpack what is wanted of it."""
    requirement, sha256, _ = pinned_requirement()
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "--dest", scratch, "--requirement", str(LOCK)]
        if guard.run(command, pip_environment(os.environ)):
            raise SourceError(
                f"pip could not download {requirement} (its own message is above). On a machine without a package index, "
                "unpack that source distribution elsewhere and set LSM_LLAMA_CPP_DIR to its vendor/llama.cpp."
            )
        (archive,) = Path(scratch).glob("*.tar.gz")
        unpack(archive, sha256, destination, wanted)


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what the pip around us told our build backend: the pip that we start would tell it to the archive's backend."""
    return {name: value for name, value in environ.items() if not name.startswith(("_PYPROJECT_HOOKS_", "PEP517_"))}


def locate(cache: Path, environ: Mapping[str, str]) -> Path:
    """The verified source tree: LSM_LLAMA_CPP_DIR if set, else a copy in the cache, fetched when missing.

    The caller holds the lock of the cache. Raises SourceError.
    """
    expected = read_manifest()
    if given := environ.get("LSM_LLAMA_CPP_DIR"):
        root = Path(given).expanduser().resolve()
        if not root.is_dir():
            raise SourceError(f"LSM_LLAMA_CPP_DIR={given}: no such directory. Give the root of a llama.cpp source tree.")
        check_tree(root, expected)
        return root
    destination = cache / f"llama.cpp-{pinned_requirement()[2]}"
    if not destination.is_dir():
        with tempfile.TemporaryDirectory(dir=cache, prefix="unpack-") as scratch:
            tree = Path(scratch, "tree")
            fetch(tree)
            check_tree(tree, expected)
            tree.rename(destination)
    return destination


def main() -> None:
    """`python -m cffi_build.llama_source DIR > cffi_build/llama_cpp.sha256` after a change of the pin."""
    for name, digest in digest_tree(Path(sys.argv[1])).items():
        print(f"{digest}  {name}")


if __name__ == "__main__":
    main()
