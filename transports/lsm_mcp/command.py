"""`lsm-mcp`: the models of a command line as MCP tools on stdin and stdout.  The log goes to stderr, or where --log-file says."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from lsm_embed.async_models import OpenHost
from lsm_embed.errors import single_errors

from lsm import api
from lsm.config import HELP_FLAGS, SETTINGS, VERSION_FLAGS, Settings, parse_arguments
from lsm.config.settings import HTTP
from lsm.errors import ConfigError, LsmError
from lsm_mcp.release import version

HELP = """\
usage: lsm-mcp -m FILE [-m FILE ...] [flags]

Serves local language models as MCP tools on stdin and stdout: list_models, chat, complete, show_state, sleep, wake.
An MCP client starts it; its configuration names the command and the flags, for example

  {"mcpServers": {"lsm": {"command": "lsm-mcp", "args": ["-m", "model.gguf", "--alias", "small"]}}}

Flags and environment names are those of lsm-server (see lsm-server --help), except for the group "HTTP server".
Processes with the same --arena share the device.  The log goes to stderr, or to --log-file.
"""
MISSING = "the MCP SDK is not installed: pip install 'lsm-server[mcp]' where that is published, pip install '.[mcp]' in a checkout"
LEVELS = (logging.CRITICAL + 1, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.DEBUG)  # by --verbosity

log = logging.getLogger("lsm_mcp")


def main(argv: Sequence[str] | None = None, *, open_host: OpenHost = api.open_host) -> int:
    """Exit status: 0 when the client has left or a signal asked for the end, 1 with one line on stderr when it could not serve."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if any(word in HELP_FLAGS for word in arguments):
        print(HELP, end="")
        return 0
    if any(word in VERSION_FLAGS for word in arguments):
        print(f"lsm-mcp {version()}")
        return 0
    try:
        settings = parse_arguments(arguments, os.environ, program="lsm-mcp")
        _start_log(settings)
        _serve(settings, open_host)
    except LsmError as error:
        print(f"lsm-mcp: {error.message}", file=sys.stderr)
        return 1
    return 0


def _serve(settings: Settings, open_host: OpenHost) -> None:
    try:
        from lsm_mcp.server import serve_stdio  # takes two seconds, and may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise ConfigError(MISSING) from error
    with single_errors():
        trio.run(_until_signal, partial(serve_stdio, settings, open_host=open_host))


async def _until_signal(serve: Callable[[], Awaitable[None]]) -> None:
    """A first signal ends the server in order, a second one at once."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    break
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await serve()
        nursery.cancel_scope.cancel()


def _start_log(settings: Settings) -> None:
    try:
        handler = logging.FileHandler(settings.log_file) if settings.log_file else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise ConfigError(f"--log-file: cannot write {settings.log_file}: {error.strerror}") from None
    logging.basicConfig(level=LEVELS[settings.verbosity], format="%(asctime)s %(levelname)s %(name)s: %(message)s", handlers=[handler])
    if settings.verbosity < 4:
        logging.getLogger("mcp").setLevel(logging.WARNING)
        logging.getLogger("transitions").setLevel(logging.WARNING)
    for warning in (*settings.warnings, *_without_effect(settings)):
        log.warning("%s", warning)


def _without_effect(settings: Settings) -> list[str]:
    """Settings that were given, but mean nothing on stdio."""
    foreign = (entry for entry in SETTINGS if entry.group == HTTP and getattr(settings, entry.name) != entry.default)
    return [f"{(entry.flags or tuple(entry.constants))[0]} belongs to the HTTP server: no effect here" for entry in foreign]
