"""The `lsm-server` command: settings, log, signals, and what goes wrong at start as one line."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

import trio

from lsm.config import HELP_FLAGS, LIST_DEVICES, VERSION_FLAGS, Settings, help_text, parse_arguments
from lsm.errors import LsmError
from lsm_cli.log import set_up_log
from lsm_cli.version import devices_text, version_text

log = logging.getLogger("lsm")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOP_WITHIN_S = 30.0  # far more than a batch, an unload and the grace of connections take


def main() -> None:
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit status: 0 after SIGINT or SIGTERM, 1 with one line on standard error when the server cannot start or go on."""
    if any(word in HELP_FLAGS for word in argv):
        print(help_text(), end="")
        return 0
    if any(word in VERSION_FLAGS for word in argv):
        print(version_text())
        return 0
    if LIST_DEVICES in argv:
        print(devices_text())
        return 0
    try:
        settings = parse_arguments(argv, environ)
        set_up_log(settings)
    except LsmError as error:
        print(f"lsm-server: {error.message}", file=sys.stderr)
        return 1
    return _run_server(settings)


def _run_server(settings: Settings) -> int:
    try:
        trio.run(_serve_until_signal, settings)
    except (Exception, ExceptionGroup) as error:
        causes = list(_causes(error))
        sentences = [cause.message for cause in causes if isinstance(cause, LsmError)]
        if len(sentences) < len(causes):
            raise  # a mistake of ours: the traceback is what helps
        for sentence in dict.fromkeys(sentences):
            print(f"lsm-server: {sentence}", file=sys.stderr)
        return 1
    return 0


async def _serve_until_signal(settings: Settings) -> None:
    from lsm_http import serve  # heavy, and not needed to refuse a flag

    async with trio.open_nursery() as nursery:
        await nursery.start(_stop_on_signal, nursery.cancel_scope)
        await serve(settings)


async def _stop_on_signal(server: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The first signal ends the server in order; the next one kills it on the spot, as if we had never listened."""
    with trio.open_signal_receiver(*STOP_SIGNALS) as signals:
        task_status.started()
        async for _ in signals:
            break
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _end_within(STOP_WITHIN_S)
    server.cancel()


def _end_within(seconds: float) -> None:
    """The last resort.  Everything that is left then, the kernel gives back: locks, tickets, memory."""

    def end() -> None:
        log.critical("did not end within %.0f s of the signal; ending at once", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _causes(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    else:
        yield error


if __name__ == "__main__":
    main()
