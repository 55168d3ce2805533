"""A bound on blocking calls: what should end, but may hang, fails instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 30.0  # for a machine under load; what passes takes milliseconds


def within_limit(function: Callable[[], T]) -> T:
    """`function()` on a thread of its own; TimeoutError if it does not end in time."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result.result(LIMIT_S)
