"""What a context's memory holds of a sequence, as bytes: out of it and back into it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsm.errors import InvalidRequest, ServerError
from lsm.native.checks import check, message_buffer
from lsm.native.library import ffi, lib
from lsm.native.memory import MemoryClass
from lsm.native.model import Model

__all__ = ["SequenceStates"]


class SequenceStates:
    """The part of `Context` that reads and writes states."""

    handle: Any
    owner: int
    n_seq_max: int
    _has_moved = False  # copies and shifts of sequences are carried out with the next step; until then the memory is not what it says
    _model: Model

    def sequence_state(self, sequence: int, *, partial: bool = False) -> NDArray[np.uint8]:
        """(n,) uint8: everything the cache holds of a sequence.

        `partial`: only the parts that cannot lose single tokens (sliding windows, recurrent states).

        Raises:
            ServerError: the cache is released; or, after a copy or a shift without a step since, any other memory is.
        """
        self._check(sequence)
        self._settle()
        flags = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        state = np.empty(lib.llama_state_seq_get_size_ext(self.handle, sequence, flags), np.uint8)
        n = lib.llama_state_seq_get_data_ext(self.handle, ffi.from_buffer("uint8_t[]", state), len(state), sequence, flags)
        return state[:n]

    def sequence_state_size(self, sequence: int) -> int:
        """Bytes of the whole `sequence_state`. Copies nothing, so it works while the cache is released."""
        self._check(sequence)
        return int(lib.llama_state_seq_get_size_ext(self.handle, sequence, 0))

    def set_sequence_state(self, sequence: int, state: NDArray[np.uint8], *, partial: bool = False) -> bool:
        """Put bytes of `sequence_state` into a sequence, in place of what it holds. False: they do not fit this context.

        Raises:
            ServerError: the cache is released; or, after a copy or a shift without a step since, any other memory is.
        """
        self._check(sequence)
        self._settle()
        flags = lib.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else 0
        return bool(lib.llama_state_seq_set_data_ext(self.handle, ffi.from_buffer("uint8_t[]", state), len(state), sequence, flags))

    def _settle(self) -> None:
        self._require(MemoryClass.KV)
        if self._has_moved:
            err = message_buffer()
            check(lib.lsm_step_settle(self.handle, self.owner, err, len(err)), err)
            self._has_moved = False

    def _check(self, *sequences: int) -> None:
        for sequence in sequences:
            if not 0 <= sequence < self.n_seq_max:  # llama.cpp would end the process
                raise InvalidRequest(f"sequence {sequence} is not one of the context's {self.n_seq_max}")

    def _require(self, memory_class: MemoryClass) -> None:
        if not self._model.memory.resident(memory_class):
            raise ServerError(f"the {memory_class} memory is released: restore it before reading or writing it")
