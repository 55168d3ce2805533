"""The blocking door in whole programs: their end, ctrl-C, forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.transports.limits import LIMIT_S

IMPORTS = """
import contextlib, signal, sys, threading
import lsm, trio
from tests.transports.scripted_host import open_scripted_host
"""
OPEN = 'models = lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host)\n'


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", IMPORTS + program], capture_output=True, text=True, timeout=LIMIT_S, cwd=root)


def test_a_program_that_forgets_to_close_ends_cleanly() -> None:
    """Design 7: no hang and no noise at the end of the program, a stream left open included."""
    ended = run_program(OPEN + "stream = models['echo'].stream_complete('x [stall]'); print(next(stream))")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "x\n", "")


@pytest.mark.parametrize("set_up", ["pass", "logging.basicConfig()"])
def test_the_log_is_heard_where_the_program_asks_for_it(set_up: str) -> None:
    """Habit 9: a library writes nothing on stderr by itself, and hides nothing from a program that logs."""
    ended = run_program(f"import logging\n{set_up}\n{OPEN}logging.getLogger('lsm.runtime').warning('a warning')")
    assert (ended.returncode, ended.stderr) == (0, "" if set_up == "pass" else "WARNING:lsm.runtime:a warning\n")


FORK = """
import os

models = lsm.open({"echo": "echo.gguf", "other": "echo.gguf"}, open_host=open_scripted_host)
echo = models["echo"]
stream = echo.stream_complete("s [stall]")
next(stream)
uses = [
    lambda: echo.complete("x"), lambda: echo.chat("x"), lambda: echo.stream_complete("x"), lambda: next(stream), lambda: stream.rest(),
    lambda: models["echo"], lambda: list(models), lambda: len(models), lambda: models.state, lambda: echo.info, lambda: echo.state,
    lambda: echo.tokenize("x"), lambda: echo.detokenize([65]), lambda: echo.render("x"), lambda: echo.wake(), lambda: echo.sleep(),
]

def in_child():
    for number, use in enumerate(uses):
        try:
            print(number, use())
        except lsm.errors.InvalidRequest as error:
            assert error.message == f"these models belong to process {os.getppid()}: open your own after the fork", error
    stream.close()
    models.close()
    with lsm.open({"echo": "echo.gguf"}, open_host=open_scripted_host) as own:
        print("own", own["echo"].complete("child").text)

child = os.fork()
if not child:
    signal.alarm(10)  # a hang ends the child, not the test
    in_child()
    sys.exit()
print("status", os.waitpid(child, 0)[1], flush=True)
stream.close()
print(echo.complete("parent").text)
"""


def test_a_forked_child_is_told_to_open_its_own() -> None:
    """Design 3: a fork has no thread of the models; every use says so at once, the parent's models go on, and the child may open others."""
    ended = run_program(FORK)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "own child\nstatus 0\nparent\n", "")


def test_ctrl_c_in_a_call_cancels_it() -> None:
    """Design 7: the interrupt reaches the caller, and the slot is free for the next request."""
    ended = run_program(
        OPEN
        + """

def press_ctrl_c():
    while not models['echo'].state['requests']['running']:
        pass
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

threading.Thread(target=press_ctrl_c).start()
try:
    models['echo'].complete('x [stall]')
except KeyboardInterrupt:
    print('interrupted', models['echo'].complete('next').text)
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted next\n", "")


def test_ctrl_c_while_opening_gives_up() -> None:
    """Design 7: what is being opened is cancelled, not left behind."""
    ended = run_program(
        """
@contextlib.asynccontextmanager
async def never(settings):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    try:
        await trio.sleep_forever()
    finally:
        print('cancelled')
    yield

try:
    lsm.open({"echo": "echo.gguf"}, open_host=never)
except KeyboardInterrupt:
    print('interrupted', threading.active_count())
"""
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "cancelled\ninterrupted 1\n", "")
