"""The header of a GGUF file, read before llama.cpp sees the file: a broken one becomes a sentence, never an abort.

Everything is bounded by the size of the file and by the limits below, so that no header can make the reader slow or large.
Layout: magic, version, counts, key-value pairs, tensor infos (name, shape, type, offset), padding, tensor data.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lsm.engine.gguf_limits import check_limits
from lsm.engine.gguf_reader import Cursor, Damaged
from lsm.engine.gguf_types import BLOCKS, ArraySummary, Value, read_value
from lsm.errors import ModelFileError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_KEYS = 100_000
MAX_TENSORS = 1_000_000
MAX_KEY_BYTES = 65_535
MAX_TENSOR_NAME_BYTES = 63
MAX_DIMENSIONS = 4
MAX_METADATA_BYTES = 64 << 20  # strings that are kept, all together
DEFAULT_ALIGNMENT = 32
F32 = 0  # a type_id
MIN_PAIR_BYTES = 8 + 1 + 4 + 1  # length of the key, the key, type, value
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # length of the name, dimensions, type, offset
INT64_MAX = 2**63 - 1
AGAIN = "The file is not whole: download it again"
BROKEN = "The file is damaged: download it again, or convert it again"

_LOOKALIKES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "It is a Git LFS pointer, not the model: run `git lfs pull`"),
    (b"<!doctype", "It is a web page: use the link of the file itself"),
    (b"<html", "It is a web page: use the link of the file itself"),
    (b"<?xml", "It is an XML answer of a server: check the link"),
    (b'{"', "It is JSON, perhaps an error of a server: check the link"),
    (b"pk\x03\x04", "It is a zip archive (a wheel, or PyTorch weights): unpack it, or convert it to GGUF"),
    (b"\x1f\x8b", "It is gzip-compressed: unpack it"),
    (b"lmgg", "It is a GGML file from before GGUF: convert the model again"),
    (b"tjgg", "It is a GGJT file from before GGUF: convert the model again"),
    (b"fmgg", "It is a GGMF file from before GGUF: convert the model again"),
    (b"\0\0\0\0", "It begins with zeros: the download was never finished"),
)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`shape`: the innermost dimension first, as in the file.  `start`: its first byte in the file."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    start: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says of itself.  Arrays longer than 512 elements, and the tokens, stand in `metadata` as `ArraySummary`."""

    version: int
    architecture: str
    name: str
    tensors: tuple[GgufTensor, ...]
    metadata: Mapping[str, Value]
    file_size_bytes: int
    tensor_bytes: int


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """Read and check the header of `path`.  Raises ModelFileError: what is wrong with the file, and what to do."""
    shown = Path(path)
    try:
        with open(_open_regular(shown), "rb") as file:
            return _parse(Cursor(file, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise ModelFileError(f"{shown}: cannot be read: {error.strerror or error}") from None
    except Damaged as damage:
        raise ModelFileError(f"{shown}: {damage}") from None


def _open_regular(path: Path) -> int:
    """A descriptor of a regular file; O_NONBLOCK because opening a FIFO would wait for its writer."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: there is no such file. `lsm models` lists what is there, `lsm pull` fetches a demo model") from None
    except PermissionError:
        raise ModelFileError(f"{path}: may not be read by this user. Check the permissions of the file and of its folders") from None
    except ValueError:
        raise ModelFileError(f"{str(path)!r}: is not a path") from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    kind = "a folder: name the .gguf file in it" if stat.S_ISDIR(mode) else "not a regular file"
    raise ModelFileError(f"{path}: is {kind}")


def _parse(cursor: Cursor) -> GgufHeader:
    _check_magic(cursor)
    version = _version(cursor)
    n_tensors = _count(cursor, "tensors", MAX_TENSORS, MIN_TENSOR_BYTES)
    n_pairs = _count(cursor, "keys", MAX_KEYS, MIN_PAIR_BYTES)
    metadata = _metadata(cursor, n_pairs)
    alignment = _alignment(metadata)
    tensors = _placed(_tensors(cursor, n_tensors), _padded(cursor.position, alignment), alignment, cursor.size_bytes)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise Damaged(f"names no architecture (general.architecture), so it is not a model. {BROKEN}")
    check_limits(architecture, metadata)
    name = metadata.get("general.name")
    return GgufHeader(
        version=version,
        architecture=architecture,
        name=name if isinstance(name, str) else "",
        tensors=tensors,
        metadata=metadata,
        file_size_bytes=cursor.size_bytes,
        tensor_bytes=sum(tensor.size_bytes for tensor in tensors),
    )


def _check_magic(cursor: Cursor) -> None:
    if cursor.size_bytes == 0:
        raise Damaged(f"is empty. {AGAIN}")
    start = cursor.peek(32)
    if start[:4] == MAGIC:
        cursor.take(4)
        return
    if start[8:9] == b"{":  # eight bytes of length, then JSON
        raise Damaged("is not a GGUF file. It is a safetensors file: convert it to GGUF")
    unknown = f"It begins with {start[:4]!r} instead of {MAGIC!r}: take the model in the GGUF format"
    looks_like = next((text for prefix, text in _LOOKALIKES if start.lower().startswith(prefix)), unknown)
    raise Damaged(f"is not a GGUF file. {looks_like}")


def _version(cursor: Cursor) -> int:
    version = cursor.uint32()
    if version and version & 0xFFFF == 0:
        raise Damaged("is a big-endian GGUF file, and this machine is little-endian: take the other variant of the file")
    if version not in VERSIONS:
        remedy = "convert the model again" if version < min(VERSIONS) else "it was written by a newer program, so update lsm-server"
        raise Damaged(f"has GGUF version {version}, readable are {' and '.join(map(str, VERSIONS))}: {remedy}")
    return version


def _count(cursor: Cursor, what: str, limit: int, min_bytes: int) -> int:
    count = cursor.uint64()
    if count > limit or count * min_bytes > cursor.size_bytes:
        raise Damaged(f"claims to have {count} {what}, which cannot be in a file of {cursor.size_bytes} bytes. {BROKEN}")
    return count


def _metadata(cursor: Cursor, n_pairs: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    kept_bytes = 0
    for _ in range(n_pairs):
        key = cursor.text(MAX_KEY_BYTES, "a key")
        if not key or key in metadata:
            raise Damaged(f"has the key {key!r} {'twice' if key else 'without a name'}. {BROKEN}")
        before = cursor.position
        value = read_value(cursor, key)
        if not isinstance(value, ArraySummary):
            kept_bytes += cursor.position - before
        if kept_bytes > MAX_METADATA_BYTES:
            raise Damaged(f"has more than {MAX_METADATA_BYTES >> 20} MiB of metadata. {BROKEN}")
        metadata[key] = value
    return metadata


def _alignment(metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise Damaged(f"has the alignment {alignment!r}, which is not a power of two. {BROKEN}")
    return alignment


def _tensors(cursor: Cursor, n_tensors: int) -> list[GgufTensor]:
    """`start` is counted from the beginning of the tensor data so far."""
    tensors = [_tensor(cursor) for _ in range(n_tensors)]
    if len({tensor.name for tensor in tensors}) < n_tensors:
        raise Damaged(f"has two tensors of the same name. {BROKEN}")
    return tensors


def _tensor(cursor: Cursor) -> GgufTensor:
    name = cursor.text(MAX_TENSOR_NAME_BYTES, "a tensor's name")
    n_dimensions = cursor.uint32()
    if n_dimensions > MAX_DIMENSIONS:
        raise Damaged(f"has a tensor {name!r} of {n_dimensions} dimensions, at most {MAX_DIMENSIONS} are possible. {BROKEN}")
    shape = tuple(cursor.uint64() for _ in range(n_dimensions))
    type_id = cursor.uint32()
    if type_id not in BLOCKS:
        raise Damaged(f"has a tensor {name!r} of the type {type_id}, which this build does not know: it was written by another program")
    block_elements, block_bytes = BLOCKS[type_id]
    row = shape[0] if shape else 1
    if row % block_elements or math.prod(shape) > INT64_MAX:
        raise Damaged(f"has a tensor {name!r} of the impossible shape {list(shape)}. {BROKEN}")
    return GgufTensor(name, shape, type_id, cursor.uint64(), math.prod(shape) // block_elements * block_bytes)


def _placed(tensors: list[GgufTensor], data_start: int, alignment: int, file_size_bytes: int) -> tuple[GgufTensor, ...]:
    """With `start` counted from the beginning of the file.  They lie one behind the other, each aligned, the last one's end within it."""
    expected_offset = 0
    for tensor in tensors:
        if tensor.start != expected_offset:
            raise Damaged(f"has the tensor {tensor.name!r} at byte {tensor.start} of the data instead of {expected_offset}. {BROKEN}")
        expected_offset = _padded(tensor.start + tensor.size_bytes, alignment)
        end = data_start + tensor.start + tensor.size_bytes
        if end > file_size_bytes:
            missing = end - file_size_bytes
            raise Damaged(f"ends {missing} bytes before the end of its tensor {tensor.name!r}. {AGAIN}")
    return tuple(replace(tensor, start=data_start + tensor.start) for tensor in tensors)


def _padded(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment
