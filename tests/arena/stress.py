"""Many processes on one line: killed and stopped before and after any kernel call, cancelled, killed from outside.

Usage: stress.py ARENA LOG SECONDS SEED MISTAKE. Prints `stranded errors`: how many processes never came to an end, how many failed.
Workers are forks of this process, which has no line open itself; they write the log that `judge.py` reads.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from lsm.arena.flock import try_shared
from lsm.arena.line import Line
from lsm.arena.wait import wait

PROCESSES = 4
KILL_CHANCE, STOP_CHANCE, CANCEL_CHANCE = 1.5e-3, 1e-3, 0.15
GRACE_S = 10.0
KERNEL_CALLS = ((fcntl, "flock"), (os, "mkfifo"), (os, "unlink"), (os, "open"), (os, "close"), (os, "listdir"))


class Log:
    """One row for each thing that a process did; short appends of one write do not mix."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._write = os.write  # Kept, because the workers' own calls are traps.

    def note(self, life: int, what: str) -> None:
        self._write(self._fd, f"{time.monotonic_ns()} {life} {what}\n".encode())


class LoggedLine(Line):
    def __init__(self, arena: str, note: Callable[[str], None]) -> None:
        super().__init__(arena)
        self._note = note

    def ticket_lock(self) -> None:
        super().ticket_lock()
        self._note("ticket")  # Still in the door, so that the stamps are in the order of the tickets.

    def leave(self) -> None:
        self._note("leave")
        super().leave()


class NoDoor(LoggedLine):
    def door_try(self) -> bool:
        self._in_door = self._shares_want = try_shared(self._want_fd)
        return self._in_door


class NoSecondLook(LoggedLine):
    _looked = False

    def ticket_make(self) -> None:
        super().ticket_make()
        self._looked = False

    def ahead(self) -> int:
        fd, self._looked = (-1 if self._looked else super().ahead()), True
        return fd


class WatchesNobody(LoggedLine):
    def ahead(self) -> int:
        return -1


class IgnoresToken(WatchesNobody):
    def token_try(self) -> bool:
        super().token_try()
        return True


LINES: dict[str, type[LoggedLine]] = {
    "none": LoggedLine,
    "no door": NoDoor,
    "no second look": NoSecondLook,
    "watches nobody": WatchesNobody,
    "ignores token": IgnoresToken,
}


class Worker:
    def __init__(self, arena: str, log: Log, life: int, seed: int, quiet_from_s: float, line_class: type[LoggedLine]) -> None:
        self._random = random.Random(seed * 100_003 + life)
        self._quiet_from_s = quiet_from_s
        self._note: Callable[[str], None] = lambda what: log.note(life, what)
        for module, name in KERNEL_CALLS:
            setattr(module, name, self._trap(getattr(module, name)))
        self._line = line_class(arena, self._note)

    def _trap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def trapped(*args: Any, **kwargs: Any) -> Any:
            self._tempt_fate()
            answer = call(*args, **kwargs)
            self._tempt_fate()
            return answer

        return trapped

    def _tempt_fate(self) -> None:
        chance = self._random.random()
        if time.monotonic() > self._quiet_from_s:
            return
        if chance < KILL_CHANCE:
            self._note("kill")
            os.kill(os.getpid(), signal.SIGKILL)
        elif chance < KILL_CHANCE + STOP_CHANCE:
            self._note("stop")
            os.kill(os.getpid(), signal.SIGSTOP)

    def run(self, end_s: float) -> None:
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        write = os.write
        signal.signal(signal.SIGALRM, lambda *_: write(write_end, b"c") and None)
        while time.monotonic() < end_s:
            if self._random.random() < CANCEL_CHANCE:
                signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-4, 8e-3))
            won = wait(self._line, read_end)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if won:
                self._note("turn")
                self._hold()
                self._line.leave()
            drain(read_end)
            pause(self._random.choice((0, 0, self._random.uniform(0, 4))))
        self._line.close()

    def _hold(self) -> None:
        """One millisecond stands for the minimum hold, three more for the time until somebody is wanted."""
        pause(1)
        if self._line.bell_fd >= 0 and not self._line.wanted():
            sleeper = select.poll()
            sleeper.register(self._line.bell_fd, select.POLLIN)
            sleeper.poll(3)


def drain(fd: int) -> None:
    try:
        while os.read(fd, 100):
            pass
    except BlockingIOError:
        pass


def pause(pause_ms: float) -> None:
    select.poll().poll(pause_ms)


class Crowd:
    """Starts the workers, thaws the frozen, kills some from outside, replaces the dead."""

    def __init__(self, arena: str, log: Log, seconds: float, seed: int, mistake: str) -> None:
        self._arena, self._log, self._seed = arena, log, seed
        self._line_class = LINES[mistake]
        start_s = time.monotonic()
        self._end_s = start_s + seconds
        self._quiet_from_s = start_s + 0.8 * seconds  # The last fifth shows that the line recovers.
        self._random = random.Random(seed)
        self._lives: dict[int, int] = {}
        self._thaw_s: dict[int, float] = {}
        self._started = self.errors = 0

    def run(self) -> int:
        """How many were stranded."""
        for _ in range(PROCESSES):
            self._start()
        while self._lives and time.monotonic() < self._end_s + GRACE_S:
            self._collect()
            self._thaw()
            if time.monotonic() < self._quiet_from_s and self._random.random() < 0.03 and self._lives:
                self._kill_one()
            pause(2)
        for pid in self._lives:
            os.kill(pid, signal.SIGKILL)
        return len(self._lives)

    def _start(self) -> None:
        self._started += 1
        pid = os.fork()
        if pid:
            self._lives[pid] = self._started
            return
        code = 1
        try:
            Worker(self._arena, self._log, self._started, self._seed, self._quiet_from_s, self._line_class).run(self._end_s)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)

    def _collect(self) -> None:
        while self._lives:
            pid, state = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not pid:
                return
            if os.WIFSTOPPED(state):
                self._thaw_s[pid] = time.monotonic() + self._random.uniform(0.005, 0.06)
                continue
            del self._lives[pid]
            self._thaw_s.pop(pid, None)
            self.errors += os.WIFEXITED(state) and os.WEXITSTATUS(state) != 0
            if time.monotonic() < self._end_s:
                self._start()

    def _thaw(self) -> None:
        for pid, thaw_s in list(self._thaw_s.items()):
            if time.monotonic() > thaw_s:
                del self._thaw_s[pid]
                os.kill(pid, signal.SIGCONT)

    def _kill_one(self) -> None:
        pid = self._random.choice(list(self._lives))
        self._log.note(self._lives[pid], "kill")
        os.kill(pid, signal.SIGKILL)


def main(arena: str, log: str, seconds: str, seed: str, mistake: str) -> None:
    crowd = Crowd(arena, Log(log), float(seconds), int(seed), mistake)
    stranded = crowd.run()
    print(stranded, crowd.errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
