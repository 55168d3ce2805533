"""What the arena's tests share: real child processes, driven by pipes, and waits that end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lsm.errors
from lsm.arena.line import Line
from lsm.arena.wait import retry_pauses_s

TIMEOUT_S = 10.0
ACTOR = Path(__file__).with_name("actor.py")
_SOURCE = str(Path(lsm.errors.__file__).parents[1])


def child_environ() -> dict[str, str]:
    """The environment in which a child imports the same `lsm` as this process."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([_SOURCE, os.environ.get("PYTHONPATH", "")])}


def readable(fd: int, timeout_s: float = TIMEOUT_S) -> bool:
    sleeper = select.poll()
    sleeper.register(fd, select.POLLIN)
    return bool(sleeper.poll(timeout_s * 1e3))


def hung_up(fd: int, timeout_s: float = TIMEOUT_S) -> bool:
    """Does the other end hang up in time? Nothing else ends this wait."""
    sleeper = select.poll()
    sleeper.register(fd, 0)
    return bool(sleeper.poll(timeout_s * 1e3))


class Child:
    """A process with one line (`actor.py`): it does one command at a time and answers each with one line of text."""

    def __init__(self, *arguments: str | Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environ(),
            bufsize=0,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        self.hear()

    def send(self, command: str) -> None:
        self._in.write(command.encode() + b"\n")

    def has_answered(self) -> bool:
        return readable(self._out.fileno(), 0)

    def hear(self) -> str:
        assert readable(self._out.fileno()), "no answer from the child"
        answer = self._out.readline().decode().strip()
        assert answer, "the child has died"
        return answer

    def ask(self, command: str) -> str:
        self.send(command)
        return self.hear()

    def is_polling(self) -> bool:
        """Asleep in `poll`; waiting for our next command it sleeps in a pipe's `read`."""
        return "poll" in Path(f"/proc/{self.pid}/wchan").read_text()

    def sleeps(self) -> int:
        """How often it has gone to sleep: unchanged means that nothing woke it."""
        rows = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(row.split()[1]) for row in rows if row.startswith("voluntary_ctxt_switches"))

    def stop(self) -> None:
        """SIGSTOP, and wait until it stands."""
        os.kill(self.pid, signal.SIGSTOP)
        _, state = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(state)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has cleaned up."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        code = self._process.wait(TIMEOUT_S)
        self._in.close()
        self._out.close()
        return code


def join(line: Line) -> None:
    """Through the door and into the line, where nobody is in the way."""
    assert line.door_try()
    line.ticket_make()
    line.ticket_lock()
    line.door_open()
    line.bell_ring()


def take(line: Line) -> None:
    """The token, for the first in line."""
    assert line.ahead() == -1
    assert line.token_try()
    line.want_drop()


def take_after_death(line: Line) -> None:
    """The token of a holder that was killed: its locks go one by one, so the first tries may be refused."""
    assert line.ahead() == -1
    eventually(line.token_try)
    line.want_drop()


def eventually(condition: Callable[[], bool]) -> None:
    """For what the kernel does in its own time and tells nobody, like closing the files of the dead one by one."""
    pause, deadline = select.poll(), time.monotonic() + TIMEOUT_S
    for pause_s in retry_pauses_s():
        if condition():
            return
        pause.poll(pause_s * 1e3)
        assert time.monotonic() < deadline, "it never came true"


def names(arena: Path) -> list[str]:
    """What lies in the line."""
    return sorted(os.listdir(arena / "line"))


@contextlib.contextmanager
def opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    fd = os.open(path, flags, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
