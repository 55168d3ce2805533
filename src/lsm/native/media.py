"""Images and sound: from the bytes of a file to embeddings that a context can decode.  libmtmd does the work.

Its encoder is device memory of the class `encoder`.  Reading files and tokenizing need none of that, and may be done by any thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lsm.errors import DeviceMemoryError, InvalidRequest, ModelFileError, ServerError, Unavailable
from lsm.native.checks import check, message_buffer, text_of
from lsm.native.context import Context
from lsm.native.context_params import FLASH_ATTENTION
from lsm.native.devices import encoder_device
from lsm.native.library import errors_logged, ffi, lib
from lsm.native.memory import MemoryClass, owner_scope
from lsm.native.model import Model
from lsm.native.sampler import Sampler
from lsm.native.vocab import Tokens
from lsm.tuning import WHERE_IT_FITS, Placing

__all__ = ["Bitmap", "Chunk", "Projector", "decode_embeddings"]

Floats = NDArray[np.float32]

N_MROPE = 4  # sections of a position


class Bitmap:
    """A decoded image, or the samples of a sound.  `id` follows from the bytes of the file."""

    def __init__(self, handle: Any) -> None:
        self.handle = ffi.gc(handle, lib.mtmd_bitmap_free)
        self.is_audio = bool(lib.mtmd_bitmap_is_audio(handle))
        self.id = str(ffi.string(lib.mtmd_bitmap_get_id(handle)).decode())


class _Chunks:
    """A tokenized prompt; its chunks live as long as it does."""

    def __init__(self) -> None:
        self.handle = ffi.gc(lib.mtmd_input_chunks_init(), lib.mtmd_input_chunks_free)


class Chunk(NamedTuple):
    """A part of a prompt that is encoded: an image, a slice of one, or up to half a minute of sound.

    `n_tokens`: its embeddings.  `n_pos`: the positions that they take.  `non_causal`: they see each other in both directions.
    """

    handle: Any
    prompt: _Chunks | None  # that it belongs to; None: to nothing
    is_audio: bool
    id: str
    n_tokens: int
    n_pos: int
    non_causal: bool
    mrope: bool

    def positions(self, first: int) -> Tokens:
        """(n_tokens,) int32, or with M-RoPE (4 * n_tokens,): all temporal ones, then all rows, columns, and zeros."""
        if not self.mrope:
            return np.arange(first, first + self.n_tokens, dtype=np.int32)
        if self.is_audio:
            return np.tile(np.arange(first, first + self.n_tokens, dtype=np.int32), N_MROPE)
        places = ffi.new("struct mtmd_decoder_pos[]", self.n_tokens)
        lib.mtmd_helper_image_get_decoder_pos(lib.mtmd_input_chunk_get_tokens_image(self.handle), first, places)
        table = np.frombuffer(ffi.buffer(places), np.uint32).reshape(self.n_tokens, N_MROPE)  # t, x, y, z
        return np.ascontiguousarray(table[:, [0, 2, 1, 3]].T.astype(np.int32)).reshape(-1)


    @property
    def is_moment(self) -> bool:
        """Whether all its rows stand at one position, as those of an image do with M-RoPE."""
        return self.mrope and not self.positions(0)[: self.n_tokens].any()

    def save(self) -> bytes:
        """What `Projector.load` makes a chunk of again: all but its content.  Raises `ServerError`."""
        size = ffi.new("size_t *")
        code = lib.mtmd_input_chunk_save(self.handle, ffi.NULL, 0, size)
        data = ffi.new("char[]", size[0])
        if code or lib.mtmd_input_chunk_save(self.handle, data, size[0], size):
            raise ServerError("a piece of the prompt's media cannot be written down")
        return bytes(ffi.buffer(data, size[0]))


class Projector:
    """The file that goes with a model and turns media into its embeddings.  Use `Projector.open`; close it before the model."""

    def __init__(self, handle: Any, model: Model, path: Path, marker: str) -> None:
        self._handle = handle
        self._lock = threading.Lock()  # nobody tokenizes while it is closed
        self.owner = model.owner
        self.memory = model.memory
        self.path = path
        self.marker = marker
        self.has_vision = bool(lib.mtmd_support_vision(handle))
        self.has_audio = bool(lib.mtmd_support_audio(handle))
        self.uses_mrope = bool(lib.mtmd_decode_use_mrope(handle))
        self.n_embd: int = lib.llama_model_n_embd_inp(model.handle)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        model: Model,
        *,
        marker: str,
        threads: int,
        image_min_tokens: int = -1,
        image_max_tokens: int = -1,
        batch_max_tokens: int = 1024,
        flash_attn: str = "auto",
        device: str = "",
        placing: Placing = WHERE_IT_FITS,
    ) -> Self:
        """Read a projector's GGUF file into device memory, beside `model`, whose owner it shares.

        Args:
            marker: text that stands for each of the media in a prompt.
            image_min_tokens, image_max_tokens: for models that take images of any size; -1: what the file says.
            batch_max_tokens: embeddings that are computed in one go; an image alone may have more.
            device: a GPU's name; "": the first of those that `placing` gives the model, "none": the CPU.

        Raises:
            ConfigError: there is no such device, or its memory cannot leave.
            ModelFileError: it is broken, of a kind that this llama.cpp does not know, or made for another model.
            SourceChanged: the file was replaced while it was loaded.
            DeviceMemoryError: the device has no room; nothing is left behind.
        """
        path = Path(path)
        params = lib.mtmd_context_params_default()
        kept_alive = ffi.new("char[]", marker.encode())
        handle_of_device = encoder_device(device, placing)
        params.use_gpu, params.device = bool(handle_of_device), handle_of_device
        params.print_timings = False
        params.n_threads, params.media_marker = threads, kept_alive
        params.flash_attn_type = FLASH_ATTENTION[flash_attn]
        params.image_min_tokens, params.image_max_tokens, params.batch_max_tokens = image_min_tokens, image_max_tokens, batch_max_tokens
        model.memory.open_source(path, MemoryClass.ENCODER)
        lib.lsm_device_allocation_failed()  # forget an earlier one
        with owner_scope(model.owner, MemoryClass.ENCODER), errors_logged() as errors:
            handle = lib.mtmd_init_from_file(os.fsencode(path), model.handle, params)
        if not handle:
            model.memory.abandon(MemoryClass.ENCODER)  # libmtmd leaks what it has made when it finds that the model is another one
            if lib.lsm_device_allocation_failed():
                raise DeviceMemoryError(f"{path}: the device has no room for the encoder; free some memory")
            raise ModelFileError(f"{path}: llama.cpp cannot use this projector: {_reason(errors)}")
        try:
            model.memory.bind_sources(MemoryClass.ENCODER)
            return cls(handle, model, path, marker)
        except BaseException:
            lib.mtmd_free(handle)
            model.memory.abandon(MemoryClass.ENCODER)
            raise

    def bitmap(self, data: bytes) -> Bitmap:
        """Decode a file: PNG, JPEG, GIF or BMP; WAV, MP3 or FLAC where the model hears.

        Raises:
            InvalidRequest: it cannot be decoded.
        """
        err = message_buffer()
        with self._lock:
            handle = lib.lsm_media_bitmap(self._open(), data, len(data), err, len(err))
        if not handle:
            raise InvalidRequest(f"the file {text_of(err)}")
        return Bitmap(handle)

    def tokenize(self, text: str, bitmaps: Sequence[Bitmap], *, add_special: bool = True) -> list[Tokens | Chunk]:
        """Token ids (n,) int32 and chunks, in order.  `text` has one `marker` for each of the bitmaps; special tokens are parsed.

        Raises:
            InvalidRequest: other numbers of markers and bitmaps, or media that the model cannot take.
        """
        if text.count(self.marker) != len(bitmaps):
            raise InvalidRequest(f"the prompt has {text.count(self.marker)} media markers for {len(bitmaps)} media")
        data = text.encode("utf-8", "replace")
        kept_alive = ffi.from_buffer("char[]", data)
        prompt = _Chunks()
        request = ffi.new("mtmd_input_text *", (kept_alive, len(data), add_special, True))
        handles = ffi.new("mtmd_bitmap *[]", [bitmap.handle for bitmap in bitmaps] or 1)
        with self._lock, errors_logged() as errors:
            code = lib.mtmd_tokenize(self._open(), prompt.handle, request, handles, len(bitmaps))
            if code:
                raise InvalidRequest(f"the media cannot be prepared: {_reason(errors)}")
            n = lib.mtmd_input_chunks_size(prompt.handle)
            return [self._part(prompt, lib.mtmd_input_chunks_get(prompt.handle, i)) for i in range(n)]

    def _part(self, prompt: _Chunks, handle: Any) -> Tokens | Chunk:
        kind = lib.mtmd_input_chunk_get_type(handle)
        if kind == lib.MTMD_INPUT_CHUNK_TYPE_TEXT:
            n = ffi.new("size_t *")
            tokens = lib.mtmd_input_chunk_get_tokens_text(handle, n)
            return np.frombuffer(ffi.buffer(tokens, 4 * n[0]), np.int32).copy() if n[0] else np.zeros(0, np.int32)
        return self._chunk(prompt, handle)

    def _chunk(self, prompt: _Chunks | None, handle: Any) -> Chunk:
        return Chunk(
            handle=handle,
            prompt=prompt,
            is_audio=lib.mtmd_input_chunk_get_type(handle) == lib.MTMD_INPUT_CHUNK_TYPE_AUDIO,
            id=str(ffi.string(lib.mtmd_input_chunk_get_id(handle)).decode("utf-8", "replace")),
            n_tokens=lib.mtmd_input_chunk_get_n_tokens(handle),
            n_pos=lib.mtmd_input_chunk_get_n_pos(handle),
            non_causal=bool(lib.mtmd_decode_use_non_causal(self._handle, handle)),
            mrope=self.uses_mrope,
        )

    def load(self, data: bytes) -> Chunk:
        """The chunk that was saved.  It stands for its content where that is in a cache, and cannot be encoded.

        Raises:
            InvalidRequest: `Chunk.save` wrote no such bytes, or of a kind that the projector does not take.
        """
        handle = lib.mtmd_input_chunk_load(data, len(data))
        if not handle:
            raise InvalidRequest("its media are damaged, or of another version")
        handle = ffi.gc(handle, lib.mtmd_input_chunk_free)
        if lib.mtmd_input_chunk_get_type(handle) == lib.MTMD_INPUT_CHUNK_TYPE_TEXT:
            raise InvalidRequest("its media are damaged: there is text among them")
        with self._lock:
            self._open()
            chunk = self._chunk(None, handle)
        if chunk.save() != data:  # libmtmd takes what comes behind the end, and other numbers for true
            raise InvalidRequest("its media are damaged")
        if not (self.has_audio if chunk.is_audio else self.has_vision):
            raise InvalidRequest(f"it holds {'sound' if chunk.is_audio else 'an image'}, which the projector has no encoder for")
        return chunk

    def encode(self, first: Chunk, more: Sequence[Chunk] = ()) -> list[Floats | None]:
        """Embeddings (n_tokens, n_embd) float32 of `first`, then of each of `more`, None for one that did not go along with the others.

        Raises:
            ServerError: the encoder is not in device memory, or fails.
        """
        if not self.memory.resident(MemoryClass.ENCODER):
            raise ServerError("the encoder's device memory is released: restore it before encoding")
        batch = ffi.gc(lib.mtmd_batch_init(self._open()), lib.mtmd_batch_free)
        taken = [lib.mtmd_batch_add_chunk(batch, chunk.handle) == 0 for chunk in (first, *more)]
        with owner_scope(self.owner, MemoryClass.ENCODER), errors_logged() as errors:  # it may make larger compute buffers
            if not taken[0] or lib.mtmd_batch_encode(batch):
                raise ServerError(f"the encoder failed: {_reason(errors)}")
        return [self._embeddings(batch, chunk) if is_in else None for chunk, is_in in zip((first, *more), taken, strict=True)]

    def _embeddings(self, batch: Any, chunk: Chunk) -> Floats:
        pointer = lib.mtmd_batch_get_output_embd(batch, chunk.handle)
        if not pointer:
            raise ServerError("the encoder gave no embeddings")
        size_bytes = 4 * chunk.n_tokens * self.n_embd
        return np.frombuffer(ffi.buffer(pointer, size_bytes), np.float32).reshape(chunk.n_tokens, self.n_embd).copy()

    def _open(self) -> Any:
        if not self._handle:
            raise Unavailable("the model is being unloaded")
        return self._handle

    def close(self) -> None:
        """Also while its memory is released.  Waits for tokenizing that runs.  Idempotent."""
        with self._lock:
            if self._handle:
                lib.mtmd_free(self._handle)
                self._handle = ffi.NULL


def decode_embeddings(
    context: Context, embeddings: Floats, positions: Tokens, sequence: int, *, causal: bool = True, sampler: Sampler | None = None
) -> tuple[int, int]:
    """Decode what an encoder made of an image or a sound; returns llama_decode's code and the token that was sampled, -1 for none.

    Args:
        embeddings: (n, n_embd) float32, 1 <= n <= the context's n_batch.
        positions: (n,) int32, or (4 * n,) for models with M-RoPE, all first sections before all second ones.
        causal: False lets each embedding see those behind it; then n <= n_ubatch.
        sampler: chooses and accepts a token from the logits of the last row.

    Raises:
        InvalidRequest: too many, or of the wrong shape for this model.
        ServerError: the device memory is released, or the sampler failed.
    """
    n, n_embd = embeddings.shape
    if embeddings.dtype != np.float32 or positions.dtype != np.int32 or len(positions) % n:
        raise InvalidRequest("embeddings must be float32 and positions int32, as many of them for each embedding")
    if not 0 <= sequence < context.n_seq_max:  # llama.cpp would end the process
        raise InvalidRequest(f"sequence {sequence} is not one of the context's {context.n_seq_max}")
    sampled, err = ffi.new("int32_t *", -1), message_buffer()
    code = lib.lsm_step_decode_embeddings(
        context.handle, context.owner, n, n_embd, ffi.from_buffer("float[]", np.ascontiguousarray(embeddings)), len(positions) // n,
        ffi.from_buffer("int32_t[]", positions), sequence, causal, sampler.handle if sampler else ffi.NULL, sampled, err, len(err),
    )  # fmt: skip
    return check(code, err), int(sampled[0])


def _reason(errors: Sequence[str]) -> str:
    """What llama.cpp logged of it."""
    return "; ".join(errors) if errors else "its log says why"
