"""LoRA adapters: small matrices beside a model's own, from a file of their own. Their memory is of the class ADAPTERS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

from lsm.errors import DeviceMemoryError, ModelFileError
from lsm.native.library import ffi, lib
from lsm.native.memory import MemoryClass, owner_scope
from lsm.native.model import Model

__all__ = ["Adapter"]


class Adapter:
    """Use `Adapter.load`. It acts on nothing until `Context.set_adapters` names it. Closed with the model, or before it.

    task_name, prompt_prefix: what its file says of them, "" if nothing.
    invocation_tokens: where a prompt holds these tokens, the adapter is meant to begin (aLoRA); () for a plain LoRA.
    """

    def __init__(self, handle: Any, model: Model, path: Path) -> None:
        self.handle = handle
        self.path = path
        self.task_name = self.meta("adapter.lora.task_name") or ""
        self.prompt_prefix = self.meta("adapter.lora.prompt_prefix") or ""
        n = lib.llama_adapter_get_alora_n_invocation_tokens(handle)
        self.invocation_tokens: tuple[int, ...] = tuple(ffi.unpack(lib.llama_adapter_get_alora_invocation_tokens(handle), n)) if n else ()
        self._model = model
        model.adapters.add(self)

    @classmethod
    def load(cls, model: Model, path: str | os.PathLike[str]) -> Self:
        """Read a GGUF file into device memory. Before the model's contexts are made: they reserve room for the graph of all adapters.

        Raises:
            ModelFileError: the file is missing, broken, no LoRA, or made for another model.
            SourceChanged: the file was replaced while it was read.
            DeviceMemoryError: the device has no room; nothing is left behind.
        """
        if model.contexts:
            raise ValueError("adapters are loaded before the first context of their model")
        path = Path(path)
        model.memory.open_source(path, MemoryClass.ADAPTERS)
        lib.lsm_device_allocation_failed()  # forget an earlier one
        with owner_scope(model.owner, MemoryClass.ADAPTERS):
            handle = lib.llama_adapter_lora_init(model.handle, os.fsencode(path))
        if not handle:
            if lib.lsm_device_allocation_failed():
                raise DeviceMemoryError(f"{path}: the device has no room for this adapter; free some memory")
            raise ModelFileError(f"{path}: llama.cpp cannot use this file as a LoRA adapter of {model.path.name}; the log says why")
        try:
            model.memory.bind_sources(MemoryClass.ADAPTERS)
            return cls(handle, model, path)
        except BaseException:
            lib.llama_adapter_lora_free(handle)
            raise

    def meta(self, key: str) -> str | None:
        """A scalar of the file's metadata as text; None if it is absent or an array."""
        out = ffi.new("char[]", 4096)
        n = lib.llama_adapter_meta_val_str(self.handle, key.encode(), out, len(out))
        return None if n < 0 else str(ffi.string(out).decode("utf-8", "replace"))

    def close(self) -> None:
        """After the contexts that use it are closed, or have been given other adapters. Idempotent."""
        if self.handle:
            lib.llama_adapter_lora_free(self.handle)
            self.handle = ffi.NULL
            self._model.adapters.discard(self)
