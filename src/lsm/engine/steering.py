"""What acts beside the weights: LoRA adapters and control vectors, checked before llama.cpp sees their files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lsm.engine.gguf_header import F32, GgufTensor, read_header
from lsm.errors import ModelFileError
from lsm.native.adapter import Adapter
from lsm.native.model import Model
from lsm.native.vocab import Vocab
from lsm.values import AdapterInfo

Scaled = tuple[Path, float]


def load_adapters(model: Model, files: Sequence[Scaled]) -> tuple[Adapter, ...]:
    """In the order given.  Raises ModelFileError, DeviceMemoryError; those that were loaded go with the model."""
    for path, _ in files:
        _check_adapter(path)
    return tuple(Adapter.load(model, path) for path, _ in files)


def _check_adapter(path: Path) -> None:
    """llama.cpp reads these keys as what they ought to be, and aborts if they are something else."""
    metadata = read_header(path).metadata
    for key, wanted in (("general.type", "adapter"), ("adapter.type", "lora")):
        if metadata.get(key) != wanted:
            raise ModelFileError(f"{path}: is no LoRA adapter: its {key} is {metadata.get(key)!r} instead of {wanted!r}")
    if not isinstance(metadata.get("adapter.lora.alpha", 0.0), float):
        raise ModelFileError(f"{path}: its adapter.lora.alpha is no 32-bit float: convert the adapter again")


def describe(adapters: Sequence[Adapter], files: Sequence[Scaled], vocab: Vocab) -> tuple[AdapterInfo, ...]:
    return tuple(
        AdapterInfo(
            id=id,
            path=str(path),
            scale=scale,
            task_name=adapter.task_name,
            prompt_prefix=adapter.prompt_prefix,
            invocation_tokens=adapter.invocation_tokens,
            invocation_text=_text(adapter.invocation_tokens, vocab),
        )
        for id, (adapter, (path, scale)) in enumerate(zip(adapters, files, strict=True))
    )


def _text(tokens: Sequence[int], vocab: Vocab) -> str:
    return b"".join(vocab.piece(token, special=True) for token in tokens if 0 <= token < vocab.n_tokens).decode("utf-8", "replace")


def read_control_vectors(files: Sequence[Scaled], n_embd: int, n_layer: int) -> NDArray[np.float32]:
    """The sum of all, each times its scale: (n_layer - 1, n_embd); row i is for layer i + 1, as layer 0 has none.

    Raises ModelFileError: a file that is no control vector of such a model.
    """
    total = np.zeros((max(n_layer - 1, 1), n_embd), np.float32)
    for path, scale in files:
        for tensor in read_header(path).tensors:
            layer = _layer_of(path, tensor, n_embd)
            if layer <= len(total):  # what is made for a deeper model acts as far as this one goes
                total[layer - 1] += np.float32(scale) * _read(path, tensor)
    return total


def _layer_of(path: Path, tensor: GgufTensor, n_embd: int) -> int:
    match = re.fullmatch(r"direction\.(\d{1,9})", tensor.name)
    if match is None or int(match[1]) == 0:
        raise ModelFileError(f"{path}: is no control vector: it has a tensor {tensor.name!r} instead of direction.1, direction.2, ..")
    if tensor.type_id != F32 or tensor.shape != (n_embd,):
        raise ModelFileError(
            f"{path}: its {tensor.name} has the shape {tensor.shape}, not {n_embd} numbers of the type F32: it is made for another model"
        )
    return int(match[1])


def _read(path: Path, tensor: GgufTensor) -> NDArray[np.float32]:
    with open(path, "rb") as file:
        content = os.pread(file.fileno(), tensor.size_bytes, tensor.start)
    if len(content) < tensor.size_bytes:
        raise ModelFileError(f"{path}: became shorter while it was read")
    return np.frombuffer(content, np.float32)
