"""A trio loop on a thread of its own, for callers that have none.

    caller's thread                              portal's thread
    call(f, x)     -- run_sync_soon(start f) ->  a task runs f(x)
      waits on a future    <- result, error --
      interrupted (ctrl-C) -- cancel -------->   the task ends; then the interrupt goes on
    close()        -- run_sync_soon(set) ----->  every task is cancelled, the context is left, the thread ends

A future always comes to an end, whatever happens to the loop: nobody waits for ever.  A forked child has the objects and not the thread:
there every use is refused, and closing does nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import trio

from lsm.errors import InvalidRequest, ServerError
from lsm_embed.errors import closed, ended, of_another_process, single_errors

T = TypeVar("T")
C = TypeVar("C")
OpenContext = Callable[[], AbstractAsyncContextManager[C]]

CLOSE_LIMIT_S = 30.0  # the runtime bounds its own shutdown; this is for a device that no longer answers


class Loop:
    """The way into a loop that runs on another thread of this process."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        return os.getpid() == self._pid

    def check_process(self) -> None:
        if not self.is_ours:
            raise of_another_process(self._pid)

    def soon(self, function: Callable[..., Any], *args: Any) -> bool:
        """Run a function in the loop; False if the loop has ended, or is another process's.  What trio has accepted it also runs."""
        try:
            if self.is_ours:  # the child of a fork shares the pipe that wakes the loop
                self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            return False
        return self.is_ours


class Task(Generic[T]):
    """A function at work in the loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.scope = trio.CancelScope()
        self.future: Future[T] = Future()

    def wait(self) -> T:
        """Its result.  An interrupt of the waiting thread cancels it first, and waits until it has let go."""
        self.check_process()
        try:
            return self.future.result()
        finally:
            if not self.future.done():
                self.cancel()
                self.wait_for_end()

    def cancel(self) -> None:
        """Ask for its end."""
        self._loop.soon(self.scope.cancel)

    def wait_for_end(self) -> None:
        if self._loop.is_ours:
            wait([self.future], timeout=CLOSE_LIMIT_S)

    def check_process(self) -> None:
        """Raises `InvalidRequest` in a forked child, where nobody works on it."""
        self._loop.check_process()

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
        self._end: Callable[[], Exception] | None = None  # what to raise, once the loop has ended
        started: Future[tuple[Loop, trio.Event]] = Future()
        opened: Future[C] = Future()
        self._thread = threading.Thread(target=self._run, args=(open_context, started, opened), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise ServerError(f"there is no thread for the models: {error}; raise the limit of threads, or end some") from error
        try:
            self._loop, self._closing = started.result()
            self.context = opened.result()
        except BaseException:  # an interrupt may end the wait before the context is open
            self._loop, self._closing = started.result()
            self.close()
            raise

    def start(self, function: Callable[..., Awaitable[T]], *args: Any) -> Task[T]:
        """Begin `await function(*args)` in the loop."""
        self._loop.check_process()
        task: Task[T] = Task(self._loop)
        with self._lock:
            end = self._end
            if end is None:
                self._tasks.add(task)
        if end is not None:
            task.fail(end())
        else:
            task.future.add_done_callback(lambda _: self._forget(task))
            self._loop.soon(self._spawn, task, function, args)  # if it ends just now, the task is among those it fails
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
        if not self._loop.is_ours:
            return
        self._loop.soon(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_LIMIT_S)

    def _forget(self, task: Task[Any]) -> None:
        with self._lock:
            self._tasks.discard(task)

    # In the loop's thread.

    def _run(self, open_context: OpenContext[C], started: Future[Any], opened: Future[C]) -> None:
        cause: BaseException | None = None
        try:
            with single_errors():
                trio.run(self._main, open_context, started, opened)
        except BaseException as error:  # whatever it was: whoever waits, or calls later, hears of it
            cause = error
        end = closed if cause is None else partial(ended, cause)
        for future in (started, opened):
            if not future.done():
                future.set_exception(cause or closed())
        with self._lock:
            self._end = end
            left = list(self._tasks)
        for task in left:
            task.fail(end())

    async def _main(self, open_context: OpenContext[C], started: Future[Any], opened: Future[C]) -> None:
        closing = trio.Event()
        started.set_result((Loop(trio.lowlevel.current_trio_token()), closing))
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
        if not closing.is_set():
            raise ServerError("they were left without being closed")

    def _leave(self) -> None:
        """An open context is left in peace; one that is still being opened is cancelled."""
        self._closing.set()
        if self._opening:
            self._scope.cancel()

    def _spawn(self, task: Task[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(_perform, task, function, args)
        elif self._closing.is_set():
            task.fail(closed())
        # else the context is ending by itself: the task ends with the loop, whose reason is known then


async def _perform(task: Task[T], function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> None:
    """What ends because the portal ends gets its error from there, with the reason."""
    try:
        with task.scope:
            task.future.set_result(await function(*args))
        if task.scope.cancelled_caught:
            task.fail(InvalidRequest("the caller has called this off"))
    except Exception as error:
        task.future.set_exception(error)
