"""The server: listen, take the models in, answer until cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack

import trio

from lsm import api
from lsm.config import Settings
from lsm_http.connections import Connections
from lsm_http.door import make_door
from lsm_http.guards import Guarded
from lsm_http.listening import listen, url_of

log = logging.getLogger("lsm.http")

KEEP_ALIVE_S = 60.0

OpenHost = Callable[[Settings], AbstractAsyncContextManager[api.Host]]


async def serve(
    settings: Settings, *, open_host: OpenHost = api.open_host, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve the models of `settings` until cancelled; `task_status` gets the URL.

    It listens before the first model is loaded, so that a port that is taken is known at once and `/health` answers from the start.
    Raises `ConfigError` if it cannot listen, and what `open_host` raises.
    """
    with ExitStack() as exits:
        sockets = [exits.enter_context(sock) for sock in listen(settings.host, settings.port, settings.timeout_s)]
        async with open_host(settings) as host:
            app = Guarded(make_door(host, settings), timeout_s=settings.timeout_s)
            listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]
            for sock in sockets:
                log.info("listening on %s%s", url_of(sock), settings.api_prefix)
            if not settings.api_keys:
                log.warning("there is no API key: every program and every web page that reaches this address may use it (--api-key)")
            task_status.started(url_of(sockets[0]) + settings.api_prefix)
            await Connections(app, KEEP_ALIVE_S).serve(listeners)
