"""Nothing that keeps a lock alive may reach another process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lsm.arena.line import Line

from .helpers import Child, eventually, hung_up, join, names, take, take_after_death

PRINT_FILES = "import os; print(*(os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if int(fd) != 3), sep='\\n')"


def files_of(pid: int, arena: Path) -> dict[int, str]:
    """The files of the arena that a process has open, by descriptor."""
    links = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # Closed just now, or the descriptor of the listing itself.
            links[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return {fd: link for fd, link in links.items() if link.startswith(str(arena))}


def test_a_started_program_inherits_no_descriptor(new_line: Callable[..., Line], arena: Path) -> None:
    """S1: a tool or an MCP server that outlives us must not keep our lock."""
    holder, waiter = new_line(), new_line()
    join(holder)
    take(holder)
    join(waiter)
    watched = waiter.ahead()
    # Of each line: the directory, line/, three locks and one of them twice; two tickets, the bell, the watched one.
    assert len(files_of(os.getpid(), arena)) == 2 * 6 + 2 + 1 + 1
    done = subprocess.run([sys.executable, "-c", PRINT_FILES], stdout=subprocess.PIPE, text=True, close_fds=False, check=True)
    assert not [link for link in done.stdout.splitlines() if link.startswith(str(arena))]
    os.close(watched)


def test_each_descriptor_is_close_on_exec(new_line: Callable[..., Line], arena: Path) -> None:
    """S1: from its birth, without a window between opening and marking."""
    holder, waiter = new_line(), new_line()
    join(holder)
    take(holder)
    join(waiter)
    watched = waiter.ahead()
    files = files_of(os.getpid(), arena)
    assert watched in files and holder.bell_fd in files
    assert not [fd for fd in files if os.get_inheritable(fd)]
    os.close(watched)


def test_a_bare_fork_does_not_keep_the_place(new_line: Callable[..., Line], start: Callable[..., Child], arena: Path) -> None:
    """S1: the copies are closed in the forked child, so the line goes on when the parent dies."""
    holder, ours = start(), new_line()
    assert holder.ask("wait") == "True"
    forked = int(holder.ask("fork"))
    eventually(lambda: not files_of(forked, arena))  # It may not have run yet.
    join(ours)
    watched = ours.ahead()
    assert not hung_up(watched, 0), "the fork has not taken the parent's locks away"
    # Stopped, the forked child cannot end with its standard input when its parent is killed.
    os.kill(forked, signal.SIGSTOP)
    holder.kill()
    assert hung_up(watched)
    os.close(watched)
    take_after_death(ours)
    os.kill(forked, signal.SIGKILL)
    assert names(arena) == ["000000000001", "000000000002"]
