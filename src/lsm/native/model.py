"""A loaded model: its weights, its vocabulary, and what its file says about it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lsm.errors import DeviceMemoryError, LoadCancelled, ModelFileError
from lsm.native.devices import chosen_devices, set_placing
from lsm.native.library import ffi, lib
from lsm.native.memory import DeviceMemory, install, owner_scope
from lsm.native.params import set_loading
from lsm.native.vocab import Vocab
from lsm.tuning import AS_IT_COMES, WHERE_IT_FITS, Loading, Placing

if TYPE_CHECKING:
    from lsm.native.adapter import Adapter
    from lsm.native.context import Context

__all__ = ["Model"]

Progress = Callable[[float], bool | None]

NOBODY = 0  # owns no memory: there is none

_open_owners: set[int] = set()  # one model for each owner: verbs act on all that an owner has

SPLIT_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


class Model:
    """Use `Model.load`. All contexts and adapters are closed with the model.

    `memory` moves the model's device memory; everything else here works while it is released.
    """

    def __init__(self, handle: Any, owner: int, path: Path, kept: object = None) -> None:
        self.handle = handle
        self._kept = kept  # what llama.cpp still points to
        self.owner = owner
        self.path = path
        self.memory = DeviceMemory(owner)
        self.vocab = Vocab(handle)
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(handle)
        self.n_embd: int = lib.llama_model_n_embd(handle)
        self.n_layer: int = lib.llama_model_n_layer(handle)
        self.n_params: int = lib.llama_model_n_params(handle)
        self.n_swa: int = lib.llama_model_n_swa(handle)
        self.size_bytes: int = lib.llama_model_size(handle)
        self.has_encoder = bool(lib.llama_model_has_encoder(handle))
        self.decoder_start = self._decoder_start() if self.has_encoder else None  # the token that an answer begins after
        self.has_decoder = bool(lib.llama_model_has_decoder(handle))
        self.is_recurrent = bool(lib.llama_model_is_recurrent(handle))
        self.is_hybrid = bool(lib.llama_model_is_hybrid(handle))
        self.description = _text(lambda out, size: lib.llama_model_desc(handle, out, size)) or ""
        self.architecture = self.meta("general.architecture") or ""
        self.contexts: set[Context] = set()  # open ones; a context adds and removes itself
        self.adapters: set[Adapter] = set()  # likewise

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        owner: int,
        *,
        progress: Progress | None = None,
        loading: Loading = AS_IT_COMES,
        placing: Placing = WHERE_IT_FITS,
    ) -> Self:
        """Read a GGUF file (or the first of a split model's files) into device memory.

        Args:
            owner: a positive number, unique among open models; names the model's memory from now on.
            progress: called with 0.0 to 1.0; returning False stops the load.
            loading: how the weights are read.
            placing: on which devices. With a GPU among them what stays in the host's memory is not moved.

        Raises:
            ConfigError: `loading` or `placing` names what does not exist here.
            ModelFileError: the file is missing, broken, or of an architecture that this llama.cpp does not know.
            SourceChanged: the file was replaced while it was loaded.
            DeviceMemoryError: the device has no room; nothing is left behind.
            LoadCancelled: `progress` returned False.
        """
        install()
        path = Path(path)
        memory = DeviceMemory(owner)
        if owner in _open_owners:
            raise ValueError(f"owner {owner} has an open model already")
        memory.let_host_stay(bool(chosen_devices(placing)))
        try:
            for part in split_files(path):
                memory.open_source(part)
            handle, kept = _load(path, owner, progress, loading, placing)
            try:
                memory.bind_sources()
                model = cls(handle, owner, path, kept)
            except BaseException:
                lib.llama_model_free(handle)
                raise
        except BaseException:
            memory.forget()
            raise
        _open_owners.add(owner)
        return model

    @classmethod
    def outline(cls, path: str | os.PathLike[str], *, loading: Loading, placing: Placing) -> Self:
        """The same model without its weights: everything has a size, and nothing takes memory on a device.  It belongs to nobody.

        Raises:
            ModelFileError: as for `load`.
        """
        install()
        handle, kept = _load(Path(path), NOBODY, None, loading, placing, no_alloc=True)
        return cls(handle, NOBODY, Path(path), kept)

    def meta(self, key: str) -> str | None:
        """A scalar of the file's metadata as text; None if it is absent or an array."""
        return _text(lambda out, size: lib.llama_model_meta_val_str(self.handle, key.encode(), out, size))

    def chat_template(self, name: str | None = None) -> str | None:
        """The Jinja source of the model's chat template; `name` for one of its variants (`tool_use`); None if it has none."""
        source = lib.llama_model_chat_template(self.handle, ffi.NULL if name is None else name.encode())
        return ffi.string(source).decode("utf-8", "replace") if source else None

    def _decoder_start(self) -> int | None:
        token = int(lib.llama_model_decoder_start_token(self.handle))
        return self.vocab.bos if token == lib.LLAMA_TOKEN_NULL else token

    def close(self) -> None:
        """Free contexts, adapters, weights and the descriptors of the file; also while memory is released. Idempotent."""
        if not self.handle:
            return
        for context in list(self.contexts):
            context.close()
        for adapter in list(self.adapters):
            adapter.close()
        lib.llama_model_free(self.handle)
        self.handle = ffi.NULL
        self.memory.forget()
        _open_owners.discard(self.owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split_files(path: Path) -> list[Path]:
    """All files of a split model whose first file is `path` (name-00001-of-0000N.gguf); else just `path`."""
    match = SPLIT_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    stem, _, count = match.groups()
    return [path.with_name(f"{stem}-{i:05d}-of-{count}.gguf") for i in range(1, int(count) + 1)]


def _load(
    path: Path, owner: int, progress: Progress | None, loading: Loading, placing: Placing, *, no_alloc: bool = False
) -> tuple[Any, object]:
    params = lib.llama_model_default_params()
    kept = set_loading(params, loading) + set_placing(params, placing)
    params.no_alloc = no_alloc
    lib.lsm_device_allocation_failed()  # forget an earlier one
    with owner_scope(owner), _progress_callback(progress) as (callback, stopped):
        params.progress_callback = callback
        handle = lib.llama_model_load_from_file(os.fsencode(path), params)
    if handle and not stopped:
        return handle, kept
    if handle:  # stopped by the very last call, which llama.cpp does not heed
        lib.llama_model_free(handle)
    if stopped:
        raise stopped[0]
    if lib.lsm_device_allocation_failed():
        raise DeviceMemoryError(f"{path}: the device has no room for the weights; free some memory or choose a smaller model")
    raise ModelFileError(f"{path}: llama.cpp cannot load this file; the log says why")


@contextmanager
def _progress_callback(progress: Progress | None) -> Iterator[tuple[Any, list[BaseException]]]:
    """A C callback and the list that will hold why it said stop. Nothing is raised through C."""
    stopped: list[BaseException] = []

    def on_progress(fraction: float, _: Any) -> bool:
        try:
            if progress is not None and progress(fraction) is False:
                stopped.append(LoadCancelled("the load was cancelled"))
        except BaseException as error:  # raised again by the caller of llama.cpp
            stopped.append(error)
        return not stopped

    yield ffi.callback("bool(float, void *)", on_progress, error=False), stopped


def _text(read: Callable[[Any, int], int]) -> str | None:
    """Call a `snprintf`-like C function twice: for the length, then for the text."""
    n = read(ffi.new("char[1]"), 1)
    if n < 0:
        return None
    buffer = ffi.new("char[]", n + 1)
    read(buffer, n + 1)
    return str(ffi.string(buffer).decode("utf-8", "replace"))


