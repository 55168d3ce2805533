"""An inference context: the KV cache of some sequences, and the step that decodes a batch into it. One thread at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from lsm.errors import DeviceMemoryError, InvalidRequest, NotSupported, ServerError
from lsm.native.adapter import Adapter
from lsm.native.checks import check, message_buffer
from lsm.native.context_params import CACHE_TYPES, ContextSettings, context_params
from lsm.native.library import ffi, lib
from lsm.native.memory import MemoryClass, owner_scope
from lsm.native.model import Model
from lsm.native.params import POOLING_NAMES
from lsm.native.sampler import Sampler
from lsm.native.states import SequenceStates
from lsm.native.vocab import Tokens

__all__ = ["CACHE_TYPES", "NOT_REACHED", "Context", "Step"]

NOT_REACHED: int = lib.LSM_STEP_NOT_REACHED

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Step:
    """What a batch gave.

    code: llama_decode's: 0 done; 1 no room in the KV cache; 2 interrupted; negative: refused or failed. Other fields count after 0 only.
    sampled: (n_rows,) int32, -1 where no sampler was given, or where it finds no token that it may choose; NOT_REACHED behind a guess that
        was wrong, or that the caller has to settle.
    logits: (n_rows, n_vocab) float32, if they were asked for.
    """

    code: int
    sampled: Tokens
    logits: Floats | None


class Context(SequenceStates):
    """All sequences of one model. Close it before, or with, the model.

    Args:
        owner: the owner of its memory, normally the model's.
        settings: see `ContextSettings`.

    Raises:
        ConfigError: a value that llama.cpp does not know.
        DeviceMemoryError: the device has no room for the cache; nothing is left behind.
        ServerError: llama.cpp refuses this combination; its log says why.
    """

    def __init__(self, model: Model, owner: int, **settings: Unpack[ContextSettings]) -> None:
        pooling = model.meta(f"{model.architecture}.pooling_type")
        params = context_params(has_encoder=model.has_encoder, pooled_by_itself=pooling not in (None, "0"), **settings)
        lib.lsm_device_allocation_failed()  # forget an earlier one
        with owner_scope(owner):
            self.handle = lib.llama_init_from_model(model.handle, params)
        if not self.handle:
            if lib.lsm_device_allocation_failed():
                raise DeviceMemoryError(f"the device has no room for a context of {params.n_ctx} positions; lower n_ctx, or free memory")
            raise ServerError("llama.cpp refuses to make a context with these settings; its log says why")
        self.owner = owner
        lib.lsm_device_watch_context(owner, self.handle)
        self._memory = lib.llama_get_memory(self.handle)
        self._interrupt = ffi.new("int32_t *")
        lib.lsm_step_abort_on(self.handle, self._interrupt)
        self.n_ctx: int = lib.llama_n_ctx(self.handle)
        self.n_ctx_seq: int = lib.llama_n_ctx_seq(self.handle)
        self.n_batch: int = lib.llama_n_batch(self.handle)
        self.n_ubatch: int = lib.llama_n_ubatch(self.handle)
        self.n_seq_max: int = lib.llama_n_seq_max(self.handle)
        self.n_outputs_max: int = params.n_outputs_max
        self.has_memory = bool(self._memory)
        self.has_encoder = model.has_encoder
        self.n_rs_seq: int = lib.llama_n_rs_seq(self.handle)
        self.can_shift = bool(self._memory and lib.llama_memory_can_shift(self._memory))
        self.kv_unified = bool(params.kv_unified)
        self.is_causal = bool(lib.llama_get_causal_attn(self.handle))
        self.pooling = POOLING_NAMES.get(lib.llama_pooling_type(self.handle), "unknown")
        self.n_vocab = model.vocab.n_tokens
        self.n_embd_out: int = lib.llama_model_n_embd_out(model.handle)
        self.n_classes: int = lib.llama_model_n_cls_out(model.handle)
        self._model = model
        model.contexts.add(self)

    # ---- decoding

    def step(
        self,
        tokens: Tokens,
        positions: Tokens,
        sequences: Tokens,
        outputs: NDArray[np.int8],
        rows: Tokens,
        samplers: Sequence[Sampler | None] | None = None,
        *,
        drafted: Tokens | None = None,
        forced: NDArray[np.int8] | None = None,
        logits: bool = False,
    ) -> Step:
        """Decode one batch; then, for each row, copy its logits and let its sampler choose and accept a token. One crossing into C.

        Several tokens of one sequence are verified so: each row names in `drafted` the token that the batch has behind it, which somebody
        guessed, and the last one -1; the rows of a sequence stand together. The next row is sampled only if the guess was right.

        Args:
            tokens, positions, sequences: (n,) int32, 1 <= n <= n_batch; each token belongs to one sequence.
            outputs: (n,) int8, not 0 where logits are wanted.
            rows: (n_rows,) int32, indices into the batch, each with outputs set.
            samplers: n_rows samplers; None for a row that is not sampled.
            drafted: (n_rows,) int32: the guess that stands on this row, or -1. None: there are none.
            forced: (n_rows,) int8, not 0 where the guess counts as right whatever the sampler chooses; a grammar is not told of it.
            logits: return the rows' logits.

        Raises:
            InvalidRequest: the batch is empty or too large, or a row asked for no logits.
            ServerError: the device memory is released.
        """
        n, n_rows = len(tokens), len(rows)
        if not len(positions) == len(sequences) == len(outputs) == n:
            raise InvalidRequest("tokens, positions, sequences and outputs must have the same length")
        if np.count_nonzero(outputs) > self.n_outputs_max:  # llama.cpp would end the process
            raise InvalidRequest(f"a batch of this context has at most {self.n_outputs_max} outputs")
        if not self.has_memory:
            self._check_whole(n)
        if samplers is not None and len(samplers) != n_rows:
            raise InvalidRequest("there must be one sampler, or None, for each row")
        if any(given is not None and len(given) != n_rows for given in (drafted, forced)):
            raise InvalidRequest("there must be one guess, or -1, for each row")
        sampled = np.full(n_rows, -1, np.int32)
        matrix = np.empty((n_rows, self.n_vocab), np.float32) if logits else None
        handles = ffi.NULL if samplers is None else ffi.new("struct lsm_sampler *[]", [s.handle if s else ffi.NULL for s in samplers])
        err = message_buffer()
        code = lib.lsm_step_decode(
            self.handle, self.owner, n, _int32(tokens), _int32(positions), _int32(sequences), ffi.from_buffer("int8_t[]", outputs),
            n_rows, _int32(rows), handles, ffi.NULL if drafted is None else _int32(drafted),
            ffi.NULL if forced is None else ffi.from_buffer("int8_t[]", forced), _int32(sampled),
            ffi.NULL if matrix is None else ffi.from_buffer("float[]", matrix), err, len(err),
        )  # fmt: skip
        self._has_moved = self._has_moved and code != 0
        return Step(check(code, err), sampled, matrix)

    def encode(self, tokens: Tokens, positions: Tokens, sequences: Tokens, outputs: NDArray[np.int8]) -> int:
        """The batch of `step` through the encoder, or through a model without KV cache; returns llama_encode's code.

        Raises:
            InvalidRequest: the batch is empty or too large.
            ServerError: the device memory is released.
        """
        self._check_whole(len(tokens))
        err = message_buffer()
        code = lib.lsm_step_encode(
            self.handle, self.owner, len(tokens), _int32(tokens), _int32(positions), _int32(sequences),
            ffi.from_buffer("int8_t[]", outputs), err, len(err),
        )  # fmt: skip
        return check(code, err)

    def set_embeddings(self, on: bool) -> None:
        """Whether the next batches give embeddings of all their rows (needs `computing.embeds`) or logits of those that ask."""
        lib.llama_set_embeddings(self.handle, on)

    def interrupt(self, stop: bool = True) -> None:
        """From any thread: a running step ends with code 2 between two graph nodes, and so do later ones until `interrupt(False)`."""
        self._interrupt[0] = 1 if stop else 0

    def logits(self, row: int) -> Floats:
        """(n_vocab,) float32, a copy, of this batch row of the last step; -1: its last output.

        Raises:
            InvalidRequest: the row has none.
        """
        return self._row(lib.llama_get_logits_ith(self.handle, row), self.n_vocab, f"row {row} of the last batch has no logits")

    def embedding(self, row: int) -> Floats:
        """(n_embd_out,) float32, a copy: the embedding of one token (context made with `embeddings`, no pooling)."""
        return self._row(lib.llama_get_embeddings_ith(self.handle, row), self.n_embd_out, f"row {row} of the last batch has no embedding")

    def embeddings(self, start: int, stop: int) -> Floats:
        """(stop - start, n_embd_out) float32, a copy: those of rows `start` to `stop` of the last batch, all of which gave one.

        Raises:
            InvalidRequest: there are none.
        """
        pointer = lib.llama_get_embeddings(self.handle)
        return self._row(pointer, stop * self.n_embd_out, "the last batch gave no embeddings").reshape(stop, -1)[start:]

    def sequence_embedding(self, sequence: int) -> Floats:
        """(n_embd_out,) float32, a copy: the pooled embedding of a sequence; for rerankers its scores (n_classes,)."""
        n = self.n_classes if self.pooling == "rank" else self.n_embd_out
        return self._row(lib.llama_get_embeddings_seq(self.handle, sequence), n, f"sequence {sequence} has no pooled embedding")

    def end_offload(self, sequence: int) -> None:
        """The device samples no more for this sequence; needed before its sampler is closed."""
        self._check(sequence)
        lib.lsm_sampler_end_offload(self.handle, sequence)

    def synchronize(self) -> None:
        """Wait until the device has finished; needed before memory is released."""
        lib.llama_synchronize(self.handle)

    # ---- what acts beside the weights

    def set_adapters(self, adapters: Sequence[tuple[Adapter, float]]) -> None:
        """From the next step on these LoRA adapters act, each with its scale, and no others. Costs nothing if they are the same as before.

        Sequences keep what was computed with other adapters: forget them where that must not be mixed. Works while memory is released.
        """
        handles = ffi.new("struct llama_adapter_lora *[]", [adapter.handle for adapter, _ in adapters])
        scales = ffi.new("float[]", [scale for _, scale in adapters])
        lib.llama_set_adapters_lora(self.handle, handles, len(adapters), scales)

    def set_control_vector(self, directions: Floats, first_layer: int, last_layer: int) -> None:
        """Add `directions[i]` to the output of layer i + 1, for the layers `first_layer` to `last_layer`, both included.

        Args:
            directions: (n_layers, n_embd) float32; layer 0 has none.

        Raises:
            InvalidRequest: n_embd is not the model's.
            DeviceMemoryError: the device has no room for it; this context can have none any more.
            ServerError: the memory of adapters is released.
        """
        if directions.ndim != 2 or directions.shape[1] != self._model.n_embd:
            raise InvalidRequest(f"a control vector of this model has {self._model.n_embd} numbers for each layer, not {directions.shape}")
        self._require(MemoryClass.ADAPTERS)
        data = np.ascontiguousarray(directions, np.float32)
        lib.lsm_device_allocation_failed()  # forget an earlier one
        with owner_scope(self.owner, MemoryClass.ADAPTERS):
            code = lib.llama_set_adapter_cvec(
                self.handle, ffi.from_buffer("float[]", data), data.size, data.shape[1], first_layer, last_layer
            )
        if code:
            if lib.lsm_device_allocation_failed():
                raise DeviceMemoryError("the device has no room for a control vector; free some memory")
            raise ServerError("llama.cpp refuses this control vector; its log says why")

    def clear_control_vector(self) -> None:
        """No control vector acts any more; its memory stays for the next one."""
        lib.llama_set_adapter_cvec(self.handle, ffi.NULL, 0, 0, 0, 0)

    # ---- sequences in the KV cache: only its book-keeping, so these work while the cache is released

    def seq_rm(self, sequence: int, p0: int = -1, p1: int = -1) -> bool:
        """Forget positions [p0, p1) of a sequence (-1: any sequence, open end).

        False: this model cannot forget a part; nothing changed.
        """
        if sequence != -1:
            self._check(sequence)
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, p0, p1))

    def seq_cp(self, source: int, target: int, p0: int = -1, p1: int = -1) -> None:
        """Let `target` hold what `source` holds of positions [p0, p1).

        Raises:
            NotSupported: a part only, where each sequence has its own part of the cache.
        """
        self._check(source, target)
        if not self.kv_unified and source != target and (p0 > 0 or p1 >= 0):
            raise NotSupported("without kv_unified a sequence can only be copied as a whole")
        lib.llama_memory_seq_cp(self._memory, source, target, p0, p1)
        self._has_moved = True

    def seq_keep(self, sequence: int) -> None:
        """Forget all other sequences."""
        # Not llama_memory_seq_keep: where each sequence has its own part of the cache, that one looks into a single part only.
        for other in range(self.n_seq_max):
            if other != sequence:
                self.seq_rm(other)

    def seq_add(self, sequence: int, p0: int, p1: int, delta: int) -> None:
        """Shift positions [p0, p1) by `delta`; needs `can_shift`."""
        if not self.can_shift:
            raise ServerError("this model's cache cannot shift positions")
        self._check(sequence)
        lib.llama_memory_seq_add(self._memory, sequence, p0, p1, delta)
        self._has_moved = True

    def seq_pos_min(self, sequence: int) -> int:
        """The first position in the cache, -1 if the sequence is empty."""
        self._check(sequence)
        return int(lib.llama_memory_seq_pos_min(self._memory, sequence))

    def seq_pos_max(self, sequence: int) -> int:
        self._check(sequence)
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence))

    def memory_clear(self, data: bool = True) -> None:
        """Forget all sequences; `data`: also zero the cache, so that a release has nothing to copy."""
        lib.llama_memory_clear(self._memory, data)

    def close(self) -> None:
        """Also while its memory is released. Idempotent."""
        if self.handle:
            lib.lsm_device_unwatch_context(self.handle)
            lib.llama_free(self.handle)
            self.handle = ffi.NULL
            self._model.contexts.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_whole(self, n: int) -> None:
        if n > self.n_ubatch:  # llama.cpp would end the process
            raise InvalidRequest(f"what has no KV cache is computed at once: {n} tokens are more than n_ubatch, {self.n_ubatch}")

    @staticmethod
    def _row(pointer: Any, n: int, missing: str) -> Floats:
        if not pointer:
            raise InvalidRequest(missing)
        return np.frombuffer(ffi.buffer(pointer, 4 * n), np.float32).copy()


def _int32(array: Tokens) -> Any:
    if array.dtype != np.int32:  # C would read its bytes all the same
        raise TypeError(f"int32 array expected, not {array.dtype}")
    return ffi.from_buffer("int32_t[]", array)
