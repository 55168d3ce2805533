"""A process with one line: reads a command from its standard input, does it, answers with one line of text."""

from __future__ import annotations

import os
import sys

from lsm.arena.line import Line
from lsm.arena.wait import wait
from lsm.errors import LsmError


def perform(line: Line, command: str) -> object:
    if command == "wait":
        return wait(line)
    if command == "join":
        if not line.door_try():
            return False
        line.ticket_make()
        line.ticket_lock()
        line.door_open()
        line.bell_ring()
        return line.number
    if command == "fork":
        return _fork()
    return getattr(line, command)()


def _fork() -> int:
    """A child that does nothing but live on, until its standard input is closed."""
    pid = os.fork()
    if pid == 0:
        while os.read(0, 4096):
            pass
        os._exit(0)
    return pid


def main(arena: str, label: str = "") -> None:
    line = Line(arena, label)
    print("ready", flush=True)
    while command := sys.stdin.readline().strip():
        try:
            answer = perform(line, command)
        except (LsmError, OSError, RuntimeError) as error:
            answer = f"{type(error).__name__}: {error}"
        print(answer, flush=True)
    line.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
