"""Errors on their way out: a nursery inside the runtime must not turn one error of the caller's into a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lsm.errors import InvalidRequest, LsmError, ServerError


@contextmanager
def single_errors() -> Iterator[None]:
    """Let a group that holds one error leave as that error."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if error is group:
            raise
        raise error from error.__cause__


def closed() -> InvalidRequest:
    return InvalidRequest("the models are closed: open them again")


def ended(cause: BaseException) -> ServerError:
    """Nothing may run any more, and this is why."""
    what = cause.message if isinstance(cause, LsmError) else f"{type(cause).__name__}: {cause}".removesuffix(": ")
    error = ServerError(f"the thread of the models has ended: {what}")
    error.__cause__ = cause
    return error


def of_another_process(pid: int) -> InvalidRequest:
    return InvalidRequest(f"these models belong to process {pid}: open your own after the fork")
