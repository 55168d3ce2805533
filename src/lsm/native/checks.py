"""One place where the shim's codes become exceptions."""

from __future__ import annotations

from typing import Any

from lsm.errors import DeviceMemoryError, InvalidRequest, LsmError, ModelFileError, NotSupported, ServerError, SourceChanged, SpillError
from lsm.native.library import ffi, lib

MESSAGE_BYTES = 1024

_EXCEPTIONS: dict[int, type[LsmError]] = {
    lib.LSM_E_NO_MEMORY: DeviceMemoryError,
    lib.LSM_E_SOURCE_CHANGED: SourceChanged,
    lib.LSM_E_READ: ModelFileError,
    lib.LSM_E_RELEASED: ServerError,  # the caller's order of moves is wrong: our fault, not the client's
    lib.LSM_E_BUSY: ServerError,
    lib.LSM_E_ARGUMENT: InvalidRequest,
    lib.LSM_E_NOT_MOVABLE: NotSupported,
    lib.LSM_E_FAILED: ServerError,
    lib.LSM_E_SPILL: SpillError,
}


def message_buffer() -> Any:
    """An empty `char[]` for the `err` argument of a shim function."""
    return ffi.new("char[]", MESSAGE_BYTES)


def text_of(buffer: Any) -> str:
    """The sentence that the shim wrote; paths in it may be cut in the middle of a character."""
    return str(ffi.string(buffer).decode("utf-8", "replace"))


def check(code: int, err: Any) -> int:
    """Return `code` unless it is one of the shim's own errors.

    Raises:
        DeviceMemoryError, SpillError, SourceChanged, ModelFileError, InvalidRequest, NotSupported, ServerError: as the code says.
    """
    exception = _EXCEPTIONS.get(code)
    if exception is not None:
        raise exception(text_of(err))
    return code
