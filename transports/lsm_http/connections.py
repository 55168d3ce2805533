"""Accepting and ending connections, each in a task of its own.

hypercorn's own loop ends the whole server on a mistake in one connection (a websocket upgrade with a byte too many is enough), and
cannot end while a client does not read.  So hypercorn is asked for the protocol of one connection only, and the loop is here.
It also keeps a connection that its client has left for as long as an idle one; `Connection` does not.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Sequence

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from starlette.types import ASGIApp

log = logging.getLogger("lsm.http")

SHUTDOWN_GRACE_S = 2.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # l_onoff, l_linger: unsent data is dropped


class Connection(TCPServer):
    """hypercorn's; it ends when the client has left."""

    def __init__(self, app: ASGIWrapper, config: Config, context: WorkerContext, stream: trio.SocketStream) -> None:
        super().__init__(app, config, context, ConnectionState({}), stream)  # type: ignore[arg-type]
        self._client_left = trio.Event()

    async def _read_data(self) -> None:
        await super()._read_data()
        self._client_left.set()

    async def _idle_timeout(self) -> None:
        """Runs whenever no request does."""
        with trio.move_on_after(self.config.keep_alive_timeout):
            await self._client_left.wait()
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()


class Connections:
    """All open connections of one server."""

    def __init__(self, app: ASGIApp, keep_alive_s: float) -> None:
        self._app = ASGIWrapper(app)  # type: ignore[arg-type]
        self._config = _hypercorn_config(keep_alive_s)
        self._context = WorkerContext(max_requests=None)
        self._open: set[trio.SocketStream] = set()
        self._changed = trio.Event()

    async def serve(self, listeners: Sequence[trio.SocketListener], grace_s: float = SHUTDOWN_GRACE_S) -> None:
        """Until cancelled.  Then it ends within `grace_s`, whatever the clients do."""
        async with trio.open_nursery() as nursery:
            try:
                await trio.serve_listeners(self._handle, list(listeners), handler_nursery=nursery)
            finally:
                nursery.start_soon(self._abort_after, grace_s)

    async def _handle(self, stream: trio.SocketStream) -> None:
        self._open.add(stream)
        try:  # serve_listeners closes the stream afterwards, in every case; hypercorn does not when it is cancelled
            await Connection(self._app, self._config, self._context, stream).run()
        except* Exception as group:
            log.warning("a connection ended with an error: %s", "; ".join(map(repr, _leaves(group))))
            log.debug("where it came from", exc_info=group)
        finally:
            self._open.discard(stream)
            self._changed.set()

    async def _abort_after(self, grace_s: float) -> None:
        """A send that waits for a client who does not read cannot be cancelled; closing its socket ends it."""
        with trio.move_on_after(grace_s, shield=True):
            while self._open:
                self._changed = trio.Event()
                await self._changed.wait()
        for stream in list(self._open):
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            stream.socket.close()


def _hypercorn_config(keep_alive_s: float) -> Config:
    config = Config()
    config.errorlog = log
    config.accesslog = None
    config.include_server_header = False  # the door sends its own
    config.keep_alive_timeout = keep_alive_s
    return config


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    return [leaf for one in group.exceptions for leaf in (_leaves(one) if isinstance(one, BaseExceptionGroup) else [one])]
