"""`lsm-server`: what it says before it serves, and how it ends."""

from __future__ import annotations

import logging
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from lsm_cli import server
from lsm_cli.log import set_up_log

from lsm.config import parse_arguments

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """The log as it was before: pytest's own handlers listen on it."""
    loggers = [logging.getLogger(name) for name in ("", "lsm", "lsm.llama")]
    levels, handlers = [logger.level for logger in loggers], list(loggers[0].handlers)
    yield
    for handler in set(loggers[0].handlers) - set(handlers):
        handler.close()
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_first_signal_ends_the_server_in_order(number: signal.Signals) -> None:
    """Command line: SIGINT and SIGTERM end cleanly, with status 0."""
    with start("tests.cli.signalled_server", "polite") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.read() == "leaving\nleft\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.slow
def test_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    """Command line: a second ctrl-C does not wait for a client that does not let go."""
    with start("tests.cli.signalled_server", "stubborn") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.stdout.readline() == "leaving\n"
        process.send_signal(number)
        assert process.stdout.read() == ""
    assert process.returncode == -number


@pytest.mark.slow
def test_server_that_cannot_end_is_ended() -> None:
    """ "It never hangs": what has not ended in time is left to the kernel, and says so."""
    with start("tests.cli.signalled_server", "impatient") as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert "did not end within" in process.stdout.read()
    assert process.returncode == 1


def test_port_in_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First light 8: port in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert server.run(["-m", str(tmp_path / "m.gguf"), "--port", port, "--arena", str(tmp_path / "arena")], {}) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lsm-server:")]
    assert len(lines) == 1 and port in lines[0] and "--port" in lines[0]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--porrt", "1"], "--porrt is not known; did you mean --port?"),
        ([], "no model given"),
        (["--log-file", "/", "-m", "x"], "--log-file"),
    ],
)
def test_refused_settings_are_one_line(argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Part C: usage error, status 1."""
    assert server.run(argv, {}) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lsm-server: ") and sentence in line


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    """C.9: -h anywhere wins, --version names llama.cpp's too."""
    assert server.run(["--port", "1", "-h"], {}) == 0
    assert "--sleep-idle-seconds" in capsys.readouterr().out
    assert server.run(["--version"], {}) == 0
    assert re.fullmatch(r"lsm-server [^ ]+ \(llama\.cpp .+, [0-9a-f]{9}\)\n", capsys.readouterr().out)


def test_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors: only what is raised on purpose is shortened to a sentence."""

    async def serve(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("lsm_http.serve", serve)
    with pytest.raises(ExceptionGroup) as caught:
        server.run(["-m", "m.gguf"], {})
    assert caught.group_contains(ZeroDivisionError)


def test_log_goes_to_the_file_with_the_warnings_of_the_settings(tmp_path: Path) -> None:
    """C.9: --log-file and --verbosity; what the settings warn of is in the log."""
    file = tmp_path / "log"
    argv = ("-m", "m.gguf", "--log-file", str(file))
    set_up_log(parse_arguments((*argv, "--port", "1", "--port", "2"), {}))
    logging.getLogger("lsm.http").info("heard")
    logging.getLogger("lsm.http").debug("too much")
    text = file.read_text()
    assert "--port is given more than once" in text and "heard" in text and "too much" not in text

    set_up_log(parse_arguments((*argv, "--verbosity", "1"), {}))
    logging.getLogger("lsm.http").warning("not an error")
    assert "not an error" not in file.read_text()
    assert logging.getLogger("lsm.llama").level == logging.ERROR


@pytest.mark.slow
def test_real_server_answers_and_ends(tiny_llama: Path, tmp_path: Path) -> None:
    """Command line: the command, a real model, a real port; SIGTERM ends it with status 0."""
    command = ("lsm_cli.server", "-m", str(tiny_llama), "--port", "0", "--arena", str(tmp_path / "arena"), "-c", "64")
    with start(*command) as process:
        try:
            assert process.stdout is not None
            address = next(match for line in process.stdout if (match := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)))
            with socket.create_connection(("127.0.0.1", int(address[1]))) as client:
                client.sendall(b"GET /lsm/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 200")
        finally:
            process.terminate()
        rest = process.stdout.read()
    assert process.returncode == 0
    assert "did not stop" not in rest


def test_trio_leaves_no_task_behind() -> None:
    """Command line: the signal receiver ends with the server it would have stopped."""

    async def main() -> None:
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                await nursery.start(server._stop_on_signal, nursery.cancel_scope)
                nursery.cancel_scope.cancel()

    trio.run(main)
