"""The compilers of an install end with it: whoever of pip, its backend and the guard is killed, and however."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cffi_build import guard

ROOT = Path(__file__).parents[2]

# A "compiler" in a process group of its own below a "ninja" that passes signals on, as the real one does.  Each says its number.
COMPILER = "import os, signal; print('compiler', os.getpid(), flush=True); signal.pause()"
NINJA = f"""
import os, signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {COMPILER!r}], process_group=0)
signal.signal(signal.SIGTERM, lambda *_: (os.killpg(child.pid, signal.SIGTERM), sys.exit(1)))
print("ninja", os.getpid(), flush=True)
child.wait()
"""
BACKEND = f"""
import os, sys
from cffi_build import guard
print("backend", os.getpid(), flush=True)
sys.exit(guard.run([sys.executable, "-c", {NINJA!r}], os.environ))
"""
PIP = f"""
import os, subprocess, sys
print("pip", os.getpid(), flush=True)
sys.exit(subprocess.call([sys.executable, "-c", {BACKEND!r}]))
"""


def processes_of(install: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Who runs, by role, once all have said that they do."""
    assert install.stdout is not None
    found = {}
    while len(found) < 4:
        role, pid = install.stdout.readline().split()
        found[role] = psutil.Process(int(pid))
    return found | {"guard": found["ninja"].parent()}  # type: ignore[dict-item]


@pytest.mark.slow  # it lasts until the init process has buried them
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("victim", ["pip", "backend"])
def test_compilers_end_with_those_who_asked_for_them(victim: str, number: signal.Signals) -> None:
    """Build: kill -9, kill or ctrl-C of pip or of the backend leaves nothing running."""
    with subprocess.Popen([sys.executable, "-c", PIP], cwd=ROOT, text=True, stdout=subprocess.PIPE) as install:
        processes = processes_of(install)
        processes[victim].send_signal(number)
        _, alive = psutil.wait_procs(list(processes.values()), timeout=10)
    for process in alive:
        process.kill()
    assert [role for role, process in processes.items() if process in alive] == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_guard_that_is_ended_ends_its_command_first(number: signal.Signals) -> None:
    """Build: a signal to the guard alone."""
    with subprocess.Popen([sys.executable, "-c", PIP], cwd=ROOT, text=True, stdout=subprocess.PIPE) as install:
        processes = processes_of(install)
        processes["guard"].send_signal(number)
    _, alive = psutil.wait_procs(list(processes.values()), timeout=10)
    assert alive == [] and install.returncode == guard.ABANDONED


def test_status_and_output_of_the_command_are_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    """Build: a failed compiler is a failed build, one that was killed too."""
    assert guard.run(["sh", "-c", "echo $WORD; exit 7"], {**os.environ, "WORD": "heard"}) == 7
    assert capfd.readouterr().out == "heard\n"
    assert guard.run(["sh", "-c", "kill -9 $$"], os.environ) == 128 + 9
    assert guard.run(["true"], os.environ) == 0


def test_kernel_without_descriptors_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: an old kernel builds all the same, only unguarded."""
    monkeypatch.setattr(guard, "_open_process", lambda pid: None)
    assert guard.watch(["sh", "-c", "exit 3"], []) == 3
