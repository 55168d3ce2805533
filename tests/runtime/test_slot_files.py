"""Slot files on a real disk (S31): whole or not at all, never through links, and nothing of a damaged one is used."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lsm.engine.checkpoints import Checkpoint
from lsm.engine.prompt_cache import Held
from lsm.engine.slot_content import SlotContent
from lsm.errors import ConfigError, InvalidRequest, ServerError
from lsm.runtime.slot_files import SlotFolder, check_name, open_folder
from lsm.runtime.slot_notes import SUFFIX, Mark, model_mark
from lsm.tuning import Computing

STATE = np.arange(100, dtype=np.uint8)
CONTENT = SlotContent(
    Held(np.array([5, 6, 7], np.int32), adapters=(0.5,)),
    STATE,
    (Checkpoint(1, "a", np.array([1, 2], np.uint8)), Checkpoint(3, "a", np.array([3], np.uint8))),
)
AMPLE = 10**6
MINE = Mark("mine")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SlotFolder]:
    with open_folder(tmp_path) as opened:
        yield opened


def read(folder: SlotFolder, name: str = "a", mark: Mark = MINE) -> SlotContent:
    return folder.read(name, mark, AMPLE, ()).content


def test_what_is_written_is_read(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: tokens and state from the file; adapters and snapshots from the one beside it."""
    n_bytes = folder.write("a", CONTENT, MINE)
    found = folder.read("a", MINE, AMPLE, ())
    content = found.content
    assert found.is_sound
    assert n_bytes == found.size_bytes == (tmp_path / "a").stat().st_size
    assert content.held.tokens.tolist() == [5, 6, 7] and content.held.adapters == (0.5,)
    assert content.state[8:].tobytes() == STATE[8:].tobytes()
    assert [(entry.n_tokens, entry.state.tolist()) for entry in content.checkpoints] == [(1, [1, 2]), (3, [3])]
    assert sorted(os.listdir(tmp_path)) == ["a", "a.lsm"]


def test_a_file_of_llama_server_needs_nothing_beside_it(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: it has no digest; the adapters are taken to be those that act now."""
    folder.write("a", CONTENT, MINE)
    (tmp_path / "a.lsm").unlink()
    found = folder.read("a", MINE, AMPLE, (1.0,))
    assert (found.content.held.adapters, found.content.checkpoints, found.is_sound) == ((1.0,), (), False)


def test_each_bit_that_changes_is_noticed(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: damaged files are refused, before anything of them is used, with the remedy."""
    folder.write("a", CONTENT, MINE)
    whole = (tmp_path / "a").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InvalidRequest, match="Unable to restore slot"):
            read(folder)


def test_each_cut_is_noticed(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: truncated files; with and without a digest."""
    folder.write("a", CONTENT, MINE)
    whole = (tmp_path / "a").read_bytes()
    for n in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:n])
        with pytest.raises(InvalidRequest, match="Unable to restore slot"):
            read(folder)
    (tmp_path / "a.lsm").unlink()
    for n in range(12 + 28):
        (tmp_path / "a").write_bytes(whole[:n])
        with pytest.raises(InvalidRequest, match="Unable to restore slot"):
            read(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'"version": 1', b'"version": 2'),
        lambda data: data.replace(b'"size": 2', b'"size": 9'),
        lambda data: data.replace(b'"n_tokens": 1', b'"n_tokens": 3'),
        lambda data: data.replace(b'"n_tokens": 3', b'"n_tokens": 4'),
        lambda data: b"[" * 100_000,
        lambda data: json.dumps([1]).encode() + b"\n",
    ],
)
def test_a_damaged_file_beside_it_is_noticed(folder: SlotFolder, tmp_path: Path, spoil: object) -> None:
    """S31: as much as the file itself."""
    folder.write("a", CONTENT, MINE)
    (tmp_path / "a.lsm").write_bytes(spoil((tmp_path / "a.lsm").read_bytes()))  # type: ignore[operator]
    with pytest.raises(InvalidRequest, match=SUFFIX):
        read(folder)


def test_a_file_of_another_model_is_refused(folder: SlotFolder) -> None:
    """S31: foreign-model files."""
    folder.write("a", CONTENT, MINE)
    with pytest.raises(InvalidRequest, match="another model"):
        read(folder, mark=Mark("other"))


def test_a_state_larger_than_the_cache_is_not_even_read(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: never a huge allocation: the file is sparse, and claims a terabyte."""
    folder.write("a", CONTENT, MINE)
    os.truncate(tmp_path / "a", 1 << 40)
    with pytest.raises(InvalidRequest, match="larger than the model's whole cache"):
        read(folder)


NAMES = ("", ".", "..", ".a", "a.", " a", "a ", "a/b", "../a", "a\\b", "a..b", "a\0", "a\nb", "\x7f", "a:b")
ODD = ("*", "a?", '"', "<", "|", "x" * 252)


@pytest.mark.parametrize("name", (*NAMES, *ODD, "a.lsm", "\ufffd", "\u2215etc"))
def test_an_odd_name_is_refused(name: str) -> None:
    """S31: bad filename 400; llama-server's rules, hidden files, and ours."""
    with pytest.raises(InvalidRequest, match="Invalid filename"):
        check_name(name)


@pytest.mark.parametrize("name", ("a", "slot-1.bin", "über", "日本", "a b", "x" * 251))
def test_a_plain_name_is_fine(name: str) -> None:
    """S31: also beyond ASCII."""
    check_name(name)


def test_links_are_not_followed(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: symlinks refused: neither read nor replaced."""
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "a").symlink_to(target)
    with pytest.raises(InvalidRequest, match="symbolic link"):
        read(folder)
    with pytest.raises(InvalidRequest, match="not a file"):
        folder.write("a", CONTENT, MINE)
    assert target.read_bytes() == b"precious"


def test_what_is_no_file_is_refused(folder: SlotFolder, tmp_path: Path) -> None:
    """S31: a folder, and a FIFO, which would hang whoever opens it."""
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "b")
    for name in ("a", "b"):
        with pytest.raises(InvalidRequest, match="not a file"):
            read(folder, name)
        with pytest.raises(InvalidRequest, match="not a file"):
            folder.write(name, CONTENT, MINE)
    with pytest.raises(InvalidRequest, match="No such file"):
        read(folder, "absent")


@contextmanager
def no_space_after(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let a file of this process grow beyond this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("size_bytes", [0, 20, 140])
def test_a_disk_that_is_full_leaves_what_was_there(folder: SlotFolder, tmp_path: Path, size_bytes: int) -> None:
    """S31: nothing half-written: the old file stays, no scrap is left; 500 Unable to save slot."""
    folder.write("a", CONTENT, MINE)
    other = SlotContent(Held(np.arange(3, dtype=np.int32)), STATE[::-1].copy(), CONTENT.checkpoints)
    with no_space_after(size_bytes), pytest.raises(ServerError, match="Unable to save slot"):
        folder.write("a", other, MINE)
    assert read(folder).held.tokens.tolist() == [5, 6, 7]
    assert sorted(os.listdir(tmp_path)) == ["a", "a.lsm"]


def test_what_a_killed_process_was_writing_goes_at_the_next_start(tmp_path: Path) -> None:
    """S31, D.1: but not what a living one writes, nor what is no such file."""
    dead, living, others = ".lsm-0123456789abcdef", ".lsm-fedcba9876543210", ["a", ".lsm-x", ".lsm-0123456789abcdef0"]
    for name in (dead, living, *others):
        (tmp_path / name).write_bytes(b"part")
    with (tmp_path / living).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open_folder(tmp_path):
            assert sorted(os.listdir(tmp_path)) == sorted([living, *others])
    with open_folder(tmp_path):
        assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_a_file_that_is_being_written_is_not_swept(folder: SlotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S31: another server that starts meanwhile takes nothing away, not even before the lock is there, nor between data and names."""
    lock, rename, locked = fcntl.flock, os.rename, []

    def sweep_and_lock(fd: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not locked:
            locked.append(fd)
            with open_folder(tmp_path):
                pass
        lock(fd, how)

    def sweep_and_rename(old: str, new: str, **folders: int) -> None:
        with open_folder(tmp_path):
            rename(old, new, **folders)

    monkeypatch.setattr(fcntl, "flock", sweep_and_lock)
    monkeypatch.setattr(os, "rename", sweep_and_rename)
    folder.write("a", CONTENT, MINE)
    assert locked and sorted(os.listdir(tmp_path)) == ["a", "a.lsm"] and read(folder).held.tokens.tolist() == [5, 6, 7]


def test_a_folder_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    """S31: --slot-save-path."""
    with pytest.raises(ConfigError, match="--slot-save-path"), open_folder(tmp_path / "absent"):
        pass


def test_models_and_what_shapes_their_memory_are_told_apart(tmp_path: Path) -> None:
    """F7: the model, and its RoPE settings; a byte in the middle of the file counts if it is among the samples."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(bytes(1 << 20))
    two.write_bytes(bytes(1 << 20))
    assert model_mark(one, Computing()) == model_mark(two, Computing())
    assert model_mark(one, Computing()) != model_mark(one, Computing(rope_freq_base=5.0))
    two.write_bytes(bytes(1 << 19) + b"\1" + bytes((1 << 19) - 1))
    assert model_mark(one, Computing()) != model_mark(two, Computing())
