"""D.1, native.md 3: what would make llama.cpp fail or abort is found in the header first, and said in a sentence."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.gguf_header import read_header
from lsm.engine.gguf_types import BLOCKS, ArraySummary
from lsm.errors import ModelFileError
from tests.engine import gguf_bytes as make


def test_header_of_a_sound_file(tmp_path: Path) -> None:
    """D.1: version, architecture, name, counts and sizes of a GGUF file."""
    file = tmp_path / "m.gguf"
    file.write_bytes(make.gguf())
    header = read_header(file)
    assert (header.version, header.architecture, header.name, len(header.tensors)) == (3, "llama", "tiny", 2)
    assert header.tensor_bytes == make.DATA_BYTES
    assert header.file_size_bytes == file.stat().st_size
    assert header.metadata["tokens"] == ("a", "b")


@pytest.mark.parametrize(
    ("element_type", "content", "name"), [(make.U32, bytes(4 * 1000), "u32"), (make.STRING, make.text("tok") * 1000, "str")]
)
def test_long_arrays_are_measured_not_kept(tmp_path: Path, element_type: int, content: bytes, name: str) -> None:
    """D.1: a vocabulary does not become a Python list."""
    file = tmp_path / "m.gguf"
    file.write_bytes(make.gguf((make.ARCHITECTURE, make.array_pair("long", element_type, 1000, content), make.u32_pair("after", 7))))
    metadata = read_header(file).metadata
    assert metadata["long"] == ArraySummary(name, 1000)
    assert metadata["after"] == 7


def test_alignment_of_the_file_counts(tmp_path: Path) -> None:
    """D.1: with general.alignment 64 the second tensor lies at 64, and 32 is wrong."""
    pairs = (make.ARCHITECTURE, make.u32_pair("general.alignment", 64))
    file = tmp_path / "m.gguf"
    file.write_bytes(make.gguf(pairs, (make.tensor("a", (8,), 0), make.tensor("b", (4, 4), 64)), data_bytes=128, alignment=64))
    assert len(read_header(file).tensors) == 2
    file.write_bytes(make.gguf(pairs, data_bytes=128, alignment=64))
    with pytest.raises(ModelFileError, match="at byte 32 of the data instead of 64"):
        read_header(file)


HUGE = 2**62
BROKEN_FILES = {
    "empty": (b"", "is empty"),
    "web page": (b"<!DOCTYPE html><html><body>not here", "web page"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "git lfs pull"),
    "safetensors": (struct.pack("<Q", 60) + b'{"weight":{"dtype":"F32"}}', "safetensors"),
    "zip": (b"PK\x03\x04" + bytes(64), "zip archive"),
    "old ggml": (b"tjgg" + bytes(64), "before GGUF"),
    "zeros": (bytes(4096), "begins with zeros"),
    "other": (b"hello, world" * 4, "begins with b'hell' instead of b'GGUF'"),
    "only magic": (b"GGUF", "ends in the middle of its header"),
    "version 1": (make.gguf(version=1), "version 1"),
    "version 9": (make.gguf(version=9), "newer program"),
    "big endian": (make.gguf(version=3 << 24), "big-endian"),
    "huge tensor count": (make.gguf(n_tensors=HUGE), f"{HUGE} tensors"),
    "huge key count": (make.gguf(n_pairs=HUGE), f"{HUGE} keys"),
    "cut in the keys": (make.gguf()[:60], "ends in the middle of its header"),
    "one byte short": (make.gguf()[:-1], "ends 1 bytes before the end of its tensor 'b'"),
    "no data": (make.gguf(data_bytes=0), "download it again"),
    "key twice": (make.gguf((make.ARCHITECTURE, make.ARCHITECTURE)), "'general.architecture' twice"),
    "key without name": (make.gguf((make.ARCHITECTURE, make.u32_pair("", 1))), "without a name"),
    "nested array": (make.gguf((make.ARCHITECTURE, make.array_pair("x", make.ARRAY, 1, bytes(64)))), "array of arrays"),
    "unknown value type": (make.gguf((make.text("x") + struct.pack("<II", 99, 0),)), "unknown type 99"),
    "long string": (make.gguf((make.text("x") + struct.pack("<IQ", make.STRING, HUGE),)), "ends in the middle"),
    "long array": (make.gguf((make.array_pair("x", make.U32, HUGE, b""),)), f"claims {HUGE} elements"),
    "no architecture": (make.gguf((make.string_pair("general.name", "x"),)), "names no architecture"),
    "alignment": (make.gguf((make.ARCHITECTURE, make.u32_pair("general.alignment", 3))), "not a power of two"),
    "five dimensions": (make.gguf(tensors=(make.tensor("a", (1,) * 5, 0),)), "5 dimensions"),
    "impossible shape": (make.gguf(tensors=(make.tensor("a", (HUGE, HUGE), 0),)), "impossible shape"),
    "half a block": (make.gguf(tensors=(make.tensor("a", (33,), 0, type_id=2),)), "impossible shape"),
    "unknown tensor type": (make.gguf(tensors=(make.tensor("a", (8,), 0, type_id=77),)), "type 77"),
    "tensor twice": (make.gguf(tensors=(make.tensor("a", (8,), 0), make.tensor("a", (8,), 32))), "same name"),
    "overlap": (make.gguf(tensors=(make.tensor("a", (8,), 0), make.tensor("b", (8,), 0))), "at byte 0 of the data instead of 32"),
}


@pytest.mark.parametrize("case", BROKEN_FILES)
def test_broken_file_is_named_with_its_fault(tmp_path: Path, case: str) -> None:
    """D.1: each kind of broken file gets its own sentence, with the path in front."""
    content, sentence = BROKEN_FILES[case]
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        read_header(file)
    assert caught.value.message.startswith(str(file))
    assert sentence in caught.value.message


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """D.1: a missing file, a folder, a FIFO (whose opening would wait for a writer), an impossible name."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for path, sentence in (
        (tmp_path / "none.gguf", "no such file"),
        (tmp_path, "a folder"),
        (fifo, "not a regular file"),
        ("a\0b", "not a path"),
    ):
        with pytest.raises(ModelFileError, match=sentence):
            read_header(path)


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D.1: permission is named as such (root may read everything, so the kernel's answer is put in its mouth)."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelFileError, match="may not be read by this user"):
        read_header(tmp_path / "m.gguf")


def test_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D.1: a file that is shorter than its size at opening is truncated, not an error of ours."""
    file = tmp_path / "m.gguf"
    file.write_bytes(make.gguf()[:100])
    size_then = os.stat_result((0o100644, 0, 0, 1, 0, 0, len(make.gguf()), 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda _: size_then)
    with pytest.raises(ModelFileError, match="ends in the middle of its header"):
        read_header(file)


def _outcome(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        header = read_header(file)
    except ModelFileError as error:
        assert error.message.startswith(str(file))
    else:
        assert header.architecture and header.tensor_bytes <= header.file_size_bytes


@given(st.integers(0, len(make.gguf()) - 1), st.binary(min_size=1, max_size=9))
def test_overwritten_bytes_never_escape_as_another_error(tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes) -> None:
    """D.1: fuzz; any bytes anywhere give a header or a ModelFileError."""
    sound = make.gguf()
    _outcome(tmp_path_factory.getbasetemp() / "overwritten.gguf", sound[:at] + patch + sound[at + len(patch) :])


@given(st.integers(0, len(make.gguf())), st.integers(0, 40))
def test_removed_bytes_never_escape_as_another_error(tmp_path_factory: pytest.TempPathFactory, at: int, length: int) -> None:
    """D.1: fuzz; any bytes missing anywhere give a header or a ModelFileError."""
    sound = make.gguf()
    _outcome(tmp_path_factory.getbasetemp() / "removed.gguf", sound[:at] + sound[at + length :])


def test_every_cut_of_a_sound_file_is_noticed(tmp_path: Path) -> None:
    """D.1: no proper prefix of a file passes for the file."""
    sound, file = make.gguf(), tmp_path / "m.gguf"
    for length in range(len(sound)):
        file.write_bytes(sound[:length])
        with pytest.raises(ModelFileError):
            read_header(file)


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    """D.1: tensor sizes are computed with ggml's block sizes; Q8_1 differs there, it never stands in a file."""
    q8_1 = 9
    theirs = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items() if kind != q8_1}
    assert {kind: BLOCKS[kind] for kind in theirs} == theirs
