"""One life of a line, in a process that kills itself at its n-th kernel call. Each life is a fork of this small process.

Reads `MODE N` from its standard input and answers `killed` or `survived`. Modes:
    whole    open, wait, ask, leave, close; the count begins with the opening
    cancel   the same with a cancel that is there already: from behind somebody we leave the line again
    leave    take the token, say `held`, wait for a line of input; the count begins with the leaving
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from lsm.arena.line import Line
from lsm.arena.wait import wait

KERNEL_CALLS = (
    (fcntl, "flock"),
    (os, "open"),
    (os, "close"),
    (os, "mkdir"),
    (os, "mkfifo"),
    (os, "unlink"),
    (os, "listdir"),
    (os, "write"),
    (os, "utime"),
)


def arm(fatal_call: int) -> None:
    """Die before or after a kernel call: call n ends with point 2n and begins with point 2n - 1."""
    point = 0

    def pass_point() -> None:
        nonlocal point
        point += 1
        if point == fatal_call:
            os.kill(os.getpid(), signal.SIGKILL)

    def trap(call: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any, **kwargs: Any) -> Any:
            pass_point()
            answer = call(*args, **kwargs)
            pass_point()
            return answer

        return trapped

    for module, name in KERNEL_CALLS:
        setattr(module, name, trap(getattr(module, name)))


def live(arena: str, mode: str, fatal_call: int) -> None:
    cancel_fd = -1
    if mode == "cancel":
        cancel_fd, write_end = os.pipe()
        os.write(write_end, b"c")
    if mode != "leave":
        arm(fatal_call)
    line = Line(arena, "crasher")
    wait(line, cancel_fd)
    line.wanted()
    if mode == "leave":
        print("held", flush=True)
        os.read(0, 100)
        arm(fatal_call)
    line.leave()
    line.close()


def main(arena: str) -> None:
    print("ready", flush=True)
    while command := sys.stdin.readline().split():
        pid = os.fork()
        if pid == 0:
            live(arena, command[0], int(command[1]))
            os._exit(0)
        _, state = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(state) and os.WTERMSIG(state) == signal.SIGKILL
        print("killed" if killed else f"survived {os.waitstatus_to_exitcode(state)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
