"""A trio loop on a thread of its own, for callers that have none.

    caller's thread                              portal's thread
    call(f, x)     -- run_sync_soon(start f) ->  a task runs f(x)
      waits on a future    <- result, error --
      interrupted (ctrl-C) -- cancel -------->   the task ends; then the interrupt goes on
    close()        -- run_sync_soon(set) ----->  every task is cancelled, the context is left, the thread ends

A future always comes to an end, whatever happens to the loop: nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import trio

from lsm.errors import InvalidRequest, ServerError
from lsm_embed.errors import closed, single_errors

T = TypeVar("T")
C = TypeVar("C")
OpenContext = Callable[[], AbstractAsyncContextManager[C]]

CLOSE_LIMIT_S = 30.0  # the runtime bounds its own shutdown; this is for a device that no longer answers


class Task(Generic[T]):
    """A function at work in the loop."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self.scope = trio.CancelScope()
        self.future: Future[T] = Future()

    def wait(self) -> T:
        """Its result.  An interrupt of the waiting thread cancels it first, and waits until it has let go."""
        try:
            return self.future.result()
        finally:
            if not self.future.done():
                self.cancel()
                self.wait_for_end()

    def cancel(self) -> None:
        """Ask for its end."""
        _soon(self._token, self.scope.cancel)

    def wait_for_end(self) -> None:
        wait([self.future], timeout=CLOSE_LIMIT_S)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Portal(Generic[C]):
    """Opens a context in a loop of its own; `context` is what it gave.  Raises what opening raised.  Use from any thread but its own."""

    def __init__(self, open_context: OpenContext[C], name: str = "lsm") -> None:
        self._lock = threading.Lock()
        self._tasks: set[Task[Any]] = set()
        self._scope = trio.CancelScope()
        self._opening = True
        self._nursery: trio.Nursery | None = None
        started: Future[tuple[trio.lowlevel.TrioToken, trio.Event]] = Future()
        opened: Future[C] = Future()
        self._thread = threading.Thread(target=self._run, args=(open_context, started, opened), name=name, daemon=True)
        try:
            self._thread.start()
            self._token, self._closing = started.result()
            self.context = opened.result()
        except BaseException:  # an interrupt may end the wait before the context is open
            self._token, self._closing = started.result()
            self.close()
            raise

    def start(self, function: Callable[..., Awaitable[T]], *args: Any) -> Task[T]:
        """Begin `await function(*args)` in the loop."""
        task: Task[T] = Task(self._token)
        with self._lock:
            self._tasks.add(task)
        task.future.add_done_callback(lambda _: self._forget(task))
        if not _soon(self._token, self._spawn, task, function, args):
            task.fail(closed())
        return task

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """`await function(*args)` in the loop."""
        return self.start(function, *args).wait()

    def call_now(self, function: Callable[..., T], *args: Any) -> T:
        """`function(*args)` in the loop, between two steps of the others."""

        async def once() -> T:
            return function(*args)

        return self.call(once)

    def close(self) -> None:
        """Cancel every task, leave the context and wait for the thread.  May be called often, and from several threads."""
        _soon(self._token, self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_LIMIT_S)

    def _forget(self, task: Task[Any]) -> None:
        with self._lock:
            self._tasks.discard(task)

    # In the loop's thread.

    def _run(self, open_context: OpenContext[C], started: Future[Any], opened: Future[C]) -> None:
        reason: Exception = closed()
        try:
            with single_errors():
                trio.run(self._main, open_context, started, opened)
        except Exception as error:
            reason = error if not opened.done() else _ended(error)
        finally:
            for future in (started, opened):
                if not future.done():
                    future.set_exception(reason)
            with self._lock:
                left = list(self._tasks)
            for task in left:
                task.fail(reason)

    async def _main(self, open_context: OpenContext[C], started: Future[Any], opened: Future[C]) -> None:
        closing = trio.Event()
        started.set_result((trio.lowlevel.current_trio_token(), closing))
        with self._scope:
            async with open_context() as context, trio.open_nursery() as nursery:
                self._nursery = nursery
                self._opening = False
                opened.set_result(context)
                try:
                    await closing.wait()
                finally:
                    self._nursery = None  # also when the context ends by itself: nothing more may start
                nursery.cancel_scope.cancel()

    def _leave(self) -> None:
        """An open context is left in peace; one that is still being opened is cancelled."""
        self._closing.set()
        if self._opening:
            self._scope.cancel()

    def _spawn(self, task: Task[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        if self._nursery is None:
            task.fail(closed())
        else:
            self._nursery.start_soon(_perform, task, function, args)


async def _perform(task: Task[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
    """What ends because the portal ends gets its error from there, with the reason."""
    try:
        with task.scope:
            task.future.set_result(await function(*args))
        if task.scope.cancelled_caught:
            task.fail(InvalidRequest("the caller has called this off"))
    except Exception as error:
        task.future.set_exception(error)


def _soon(token: trio.lowlevel.TrioToken, function: Callable[..., Any], *args: Any) -> bool:
    """Run a function in the loop; False if the loop has ended.  What trio has accepted it also runs."""
    try:
        token.run_sync_soon(function, *args)
    except trio.RunFinishedError:
        return False
    return True


def _ended(error: Exception) -> ServerError:
    ended = ServerError(f"the thread of the models has ended: {error}")
    ended.__cause__ = error
    return ended
