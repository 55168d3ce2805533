"""The cache of built llama.cpp: finished or absent, whoever builds and whoever is killed meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cffi_build import cpu_flags, llama_build, llama_source, recipe

# An install whose compiler is replaced: it says "building", and goes on when its standard input tells it to.
INSTALL = """
import os, sys
from pathlib import Path
from cffi_build import cpu_flags, llama_build, llama_source

def build(recipe, source, scratch, environ):
    (scratch / "prefix").mkdir()
    print("building", flush=True)
    sys.stdin.readline()
    (scratch / "prefix" / "complete").touch()
    return scratch / "prefix"

cpu_flags.usable_features = lambda probe: []
llama_build.build = build
llama_source.locate = lambda cache, environ: cache
print(llama_build.ensure_prefix([], os.environ), flush=True)
"""


@pytest.fixture(autouse=True)
def no_probing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_flags, "usable_features", lambda probe: [])


def install(cache: Path) -> subprocess.Popen[str]:
    environ = os.environ | {"LSM_CACHE_DIR": str(cache)}
    pipe = subprocess.PIPE
    root = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-c", INSTALL], cwd=root, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def read_line(stream: object) -> str:
    return stream.readline().strip()  # type: ignore[attr-defined,no-any-return]


def test_install_killed_in_the_middle_leaves_nothing_to_find(tmp_path: Path) -> None:
    """Build: kill -9 in the middle of a build leaves no prefix, and the next install sweeps up and builds."""
    with install(tmp_path) as killed:
        assert read_line(killed.stdout) == "building"
        killed.kill()
    assert [path for path in tmp_path.glob("native-*")] == []
    assert len(list(tmp_path.glob("building-*"))) == 1
    with install(tmp_path) as second:
        assert read_line(second.stdout) == "building"
        output, _ = second.communicate("go on\n")
    assert (Path(output.strip()) / "complete").is_file()
    assert list(tmp_path.glob("building-*")) == []


def test_second_install_waits_for_the_first_and_builds_nothing(tmp_path: Path) -> None:
    """Build: two installs at once do not fight: one builds, the other says that it waits and finds the result."""
    with install(tmp_path) as first:
        assert read_line(first.stdout) == "building"
        with install(tmp_path) as second:
            assert "waiting for another build" in read_line(second.stderr)
            output, _ = first.communicate("go on\n")
            assert second.communicate()[0] == output  # the path alone: it never said "building"
    assert (Path(output.strip()) / "complete").is_file()


def test_failed_build_leaves_no_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: a build that fails, and what an earlier killed one left, do not look like a finished one."""
    (tmp_path / "building-killed" / "prefix").mkdir(parents=True)
    monkeypatch.setattr(llama_source, "locate", lambda cache, environ: tmp_path)

    def fail(*arguments: object) -> Path:
        raise recipe.BuildRefused("llama.cpp did not build")

    monkeypatch.setattr(llama_build, "build", fail)
    with pytest.raises(recipe.BuildRefused):
        llama_build.ensure_prefix([], os.environ | {"LSM_CACHE_DIR": str(tmp_path)})
    assert [path.name for path in tmp_path.iterdir()] == ["build.lock"]


def test_finished_prefix_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: the second install of the same recipe compiles nothing."""
    built: list[Path] = []

    def fake_build(recipe: object, source: Path, scratch: Path, environ: object) -> Path:
        (scratch / "prefix").mkdir()
        built.append(scratch)
        return scratch / "prefix"

    monkeypatch.setattr(llama_source, "locate", lambda cache, environ: tmp_path)
    monkeypatch.setattr(llama_build, "build", fake_build)
    environ = os.environ | {"LSM_CACHE_DIR": str(tmp_path)}
    assert llama_build.ensure_prefix([], environ) == llama_build.ensure_prefix([], environ)
    assert len(built) == 1
    assert llama_build.ensure_prefix(["-DGGML_LLAMAFILE=OFF"], environ) != llama_build.ensure_prefix([], environ)
    assert len(built) == 2


def test_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Build: a cache directory that is a file, or read-only, is named with the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(recipe.BuildRefused, match="file/cache cannot be written .* Set LSM_CACHE_DIR"):
        llama_build.ensure_prefix([], os.environ | {"LSM_CACHE_DIR": str(tmp_path / "file" / "cache")})


def test_licenses_of_everything_compiled_in_go_with_the_libraries(tmp_path: Path) -> None:
    """Build: the libraries contain code of several owners, whose licenses ask to be passed on."""
    for name in ("LICENSE", "licenses/LICENSE-jsonhpp", "vendor/hash/xxhash/LICENSE", "vendor/hash/rotate-bits/LICENSE.md"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(name)
    llama_build.copy_licenses(tmp_path / "source", tmp_path / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {
        "LICENSE-llama.cpp": "LICENSE",
        "LICENSE-jsonhpp": "licenses/LICENSE-jsonhpp",
        "LICENSE-xxhash": "vendor/hash/xxhash/LICENSE",
        "LICENSE-rotate-bits": "vendor/hash/rotate-bits/LICENSE.md",
    }
