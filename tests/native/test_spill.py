"""The KV cache of the CPU leaves memory for a file without a name, and whatever the disk does, it is whole or the error is clear."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lsm.errors import SpillError
from lsm.native.library import ffi, lib
from lsm.native.memory import install, spill_directory
from lsm.native.model import Model
from tests.native.runner import ALL, ON_THE_CPU, cycle, open_context, story


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The spill folder of this process during a test; it does not exist yet."""
    install()  # names the usual one, once
    path = tmp_path / "cache" / "spill"
    lib.lsm_device_spill_dir(os.fsencode(path))
    yield path
    lib.lsm_device_spill_dir(os.fsencode(spill_directory(os.environ)))
    for point in (lib.LSM_FAULT_WRITE_BACK, lib.LSM_FAULT_UNNAMED):
        lib.lsm_device_fail_at(point, -1)


def spill_files(folder: Path, pid: int | str = "self") -> list[int]:
    """Descriptors of a process for files in the folder that have no name there (the kernel appends `(deleted)`)."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except FileNotFoundError:  # the one that listed the folder
            continue
        if target.startswith(f"{folder}/") and target.endswith("(deleted)"):
            found.append(int(number))
    return found


@pytest.mark.parametrize("unnamed_files", [True, False])
@pytest.mark.parametrize("model_file", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
def test_spilled_memory_comes_back_bit_for_bit(
    request: pytest.FixtureRequest, folder: Path, owner: int, model_file: str, unnamed_files: bool
) -> None:
    """S9: it counts as a file's, the file has no name, the folder is made when needed, for this user alone, and may go at any time."""
    with Model.load(request.getfixturevalue(model_file), owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            if not unnamed_files:
                lib.lsm_device_fail_at(lib.LSM_FAULT_UNNAMED, 0)
            model.memory.release(*ALL)
            kv = model.memory.bytes("kv")
            assert (kv.device, kv.host) == (0, 0) and 0 < kv.file <= kv.released
            files = spill_files(folder)
            assert sum(os.fstat(file).st_size for file in files) == kv.file
            assert {stat.S_IMODE(os.fstat(file).st_mode) for file in files} == {0o600}
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            folder.rmdir()  # fails unless it is empty
            model.memory.restore(*ALL)
            assert spill_files(folder) == [] and model.memory.bytes("kv").file == 0

        assert story(model, context, pause).same_as(undisturbed)


def test_without_a_folder_copies_stay_in_host_memory(tiny_gemma3: Path, folder: Path, owner: int) -> None:
    """S9: as on devices whose memory is not the host's."""
    lib.lsm_device_spill_dir(ffi.NULL)
    with Model.load(tiny_gemma3, owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)
        model.memory.release("kv")
        kv = model.memory.bytes("kv")
        assert (kv.device, kv.file) == (0, 0) and 0 < kv.host <= kv.released


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size_bytes", [0, 4096])
def test_a_disk_without_room_keeps_the_cache_in_memory(tiny_llama: Path, folder: Path, owner: int, size_bytes: int) -> None:
    """S9: nothing is released, nothing is left on the disk, the message names the folder, and a later release works."""
    with Model.load(tiny_llama, owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            here = [model.memory.bytes(name) for name in ALL]
            with file_size_limit(size_bytes), pytest.raises(SpillError, match=f"{folder} cannot take .* File too large.*LSM_SPILL_DIR"):
                model.memory.release(*ALL)
            assert [model.memory.bytes(name) for name in ALL] == here
            assert spill_files(folder) == [] and list(folder.iterdir()) == []

        assert story(model, context, pause).same_as(undisturbed)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)


def test_a_folder_that_cannot_be_made_keeps_the_cache_in_memory(tiny_llama: Path, folder: Path, owner: int) -> None:
    """S9: here a file stands in its way."""
    folder.parent.write_text("in the way")
    with Model.load(tiny_llama, owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        story(model, context, lambda: None)
        with pytest.raises(SpillError, match=f"{folder} cannot take .* Not a directory"):
            model.memory.release(*ALL)
        assert all(model.memory.resident(name) for name in ALL)


def test_a_read_that_fails_takes_nothing_and_loses_nothing(tiny_gemma3: Path, folder: Path, owner: int) -> None:
    """S10: each file in turn ends too early; once its bytes are back, so is the cache."""
    with Model.load(tiny_gemma3, owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            model.memory.release(*ALL)
            away = [model.memory.bytes(name) for name in ALL]
            for file in spill_files(folder):
                size = os.fstat(file).st_size
                tail = os.pread(file, 5000, size - 5000)
                os.ftruncate(file, size - 5000)
                with pytest.raises(SpillError, match=f"{folder} cannot be read back: .* too early"):
                    model.memory.restore(*ALL)
                assert [model.memory.bytes(name) for name in ALL] == away
                assert not any(model.memory.resident(name) for name in ALL)
                os.pwrite(file, tail, size - 5000)
            model.memory.restore(*ALL)

        assert story(model, context, pause).same_as(undisturbed)


def test_bytes_lost_by_the_disk_are_never_taken_for_good(tiny_llama: Path, folder: Path, owner: int) -> None:
    """S10: the kernel tells of a failed write-back once; we refuse at every try, until the cache is cleared."""
    with Model.load(tiny_llama, owner, placing=ON_THE_CPU) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        model.memory.release(*ALL)
        lib.lsm_device_fail_at(lib.LSM_FAULT_WRITE_BACK, 0)
        for _ in range(3):
            with pytest.raises(SpillError, match="lost some of it"):
                model.memory.restore(*ALL)
            assert not any(model.memory.resident(name) for name in ALL)
        context.memory_clear()
        model.memory.restore(*ALL)
        assert story(model, context, lambda: None).same_as(undisturbed)


def start(model: Path, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.native.spill_and_wait", str(model)]
    environ = os.environ | {"LSM_SPILL_DIR": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environ, stdin=pipe, stdout=pipe, text=True)


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def two_processes(tiny_llama: Path, tmp_path: Path) -> Iterator[Callable[[], list[subprocess.Popen[str]]]]:
    started: list[subprocess.Popen[str]] = []

    def both() -> list[subprocess.Popen[str]]:
        started.extend(start(tiny_llama, tmp_path / "spill") for _ in range(2))
        return started

    yield both
    for process in started:
        with process:
            process.kill()


@pytest.mark.slow
def test_two_processes_share_the_folder(two_processes: Callable[[], list[subprocess.Popen[str]]], tmp_path: Path) -> None:
    """S9, S10: LSM_SPILL_DIR is heeded; both spill at the same time, neither sees the other; `kill -9` of one leaves nothing of it."""
    first, second = two_processes()
    for _ in range(3):
        assert [says(first), says(second)] == ["away", "away"]
        assert spill_files(tmp_path / "spill", first.pid) and spill_files(tmp_path / "spill", second.pid)
        assert list((tmp_path / "spill").iterdir()) == []
        go_on(first)
        go_on(second)
    assert [says(first), says(second)] == ["away", "away"]
    first.kill()
    first.wait()
    assert list((tmp_path / "spill").iterdir()) == []
    go_on(second)
    while (word := says(second)) == "away":
        go_on(second)
    assert word == "same"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LSM_SPILL_DIR": "/disk/spill", "XDG_CACHE_HOME": "/cache"}, "/disk/spill"),
        ({"LSM_SPILL_DIR": "", "XDG_CACHE_HOME": "/cache"}, "/cache/lsm-server/spill"),
        ({"LSM_SPILL_DIR": "~/spill"}, "/home/me/spill"),
        ({"LSM_SPILL_DIR": "spill"}, f"{Path.cwd()}/spill"),
        ({}, "/home/me/.cache/lsm-server/spill"),
    ],
)
def test_the_folder_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert spill_directory(environ) == Path(expected)


def test_a_user_without_a_home_has_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the cache of a sleeping model needs it: its place must not keep a model from loading."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert spill_directory({}) == Path("/var/tmp/lsm-server/spill")
