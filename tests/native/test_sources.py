"""The model's file is the copy of its weights: it must still be the file that was loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from lsm.errors import SourceChanged
from lsm.native.memory import Bytes, DeviceMemory
from lsm.native.model import Model
from tests import tiny_models
from tests.native.runner import ALL, cycle, open_context, story


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    shutil.copy2(path, other)
    other.rename(path)


def touch(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def rewrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("change", [truncate, replace, touch, rewrite, Path.unlink])
def test_a_changed_file_is_found_before_it_is_read(tiny_llama: Path, tmp_path: Path, owner: int, change: Callable[[Path], None]) -> None:
    """S10: a clear error that names the file; nothing is restored, the process lives, the KV cache alone still comes back."""
    path = Path(shutil.copy(tiny_llama, tmp_path / "mine.gguf"))
    with Model.load(path, owner) as model:
        context = open_context(model)
        story(model, context, lambda: None)
        model.memory.release(*ALL)
        away = [model.memory.bytes(name) for name in ALL]
        change(path)
        with pytest.raises(SourceChanged, match="mine.gguf"):
            model.memory.restore(*ALL)
        assert [model.memory.bytes(name) for name in ALL] == away
        model.memory.restore("kv")


def test_a_file_that_is_put_back_serves_again(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """S10: a refused restore leaves everything as it was, so that the next one can succeed."""
    path = Path(shutil.copy(tiny_llama, tmp_path / "mine.gguf"))
    with Model.load(path, owner) as model:
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)

        def pause() -> None:
            model.memory.release(*ALL)
            path.rename(tmp_path / "away.gguf")
            with pytest.raises(SourceChanged, match="is gone"):
                model.memory.restore(*ALL)
            (tmp_path / "away.gguf").rename(path)
            model.memory.restore(*ALL)

        assert story(model, context, pause).same_as(undisturbed)


def test_a_file_replaced_during_the_load_is_found(tiny_llama: Path, tmp_path: Path, owner: int) -> None:
    """S10: between the first byte and the last; nothing is left of the load."""
    path = Path(shutil.copy(tiny_llama, tmp_path / "mine.gguf"))
    with pytest.raises(SourceChanged, match="mine.gguf"):
        Model.load(path, owner, progress=lambda fraction: replace(path) if fraction == 1.0 else None)
    assert DeviceMemory(owner).bytes("weights") == Bytes()


def test_bytes_that_differ_from_the_file_are_kept(tmp_path: Path, owner: int) -> None:
    """S10: names and sizes are not trusted: a tensor that the file no longer holds as it was loaded gets a copy in host memory."""
    path = tiny_models.write_llama(tmp_path / "mine.gguf", kind=tiny_models.F16)
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_up.weight")

    def overwrite(fraction: float) -> None:
        if fraction < 1.0:
            return
        before = path.stat()
        with path.open("r+b") as file:
            file.seek(int(tensor.data_offset))
            file.write(np.zeros(tensor.n_bytes, np.uint8).tobytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the fingerprint cannot tell

    with Model.load(path, owner, progress=overwrite) as model:
        assert model.memory.bytes("weights").host == tensor.n_bytes
        context = open_context(model)
        undisturbed = story(model, context, lambda: None)
        assert story(model, context, cycle(model, context, *ALL)).same_as(undisturbed)


def test_the_file_is_closed_with_the_model(tiny_llama: Path, owner: int) -> None:
    """S10: one descriptor while the model is open, none afterwards."""

    def descriptors() -> int:
        links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
        return sum(link.is_symlink() and os.readlink(link) == str(tiny_llama) for link in links)

    model = Model.load(tiny_llama, owner)
    assert descriptors() == 1
    model.close()
    assert descriptors() == 0
