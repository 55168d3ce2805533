"""`make run`: two servers on one arena, one page, and an end that leaves nothing behind."""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from lsm_cli import main
from lsm_cli.demo import free_ports

from lsm.errors import ConfigError


def test_port_in_use_is_passed_over_and_said() -> None:
    """make run: 8080 and 8081, or the next free ones."""
    out = io.StringIO()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = free_ports(port, 2, out)
    assert port not in ports and len(set(ports)) == 2
    assert out.getvalue().startswith(f"port {port} is in use, so the next one is tried\n")


def test_no_port_is_free() -> None:
    """make run: above the last port there is none."""
    with pytest.raises(ConfigError, match="no 2 free ports from 65535 on"):
        free_ports(65535, 2, io.StringIO())


def test_models_that_are_not_there_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """make run: the remedy is the command."""
    assert main.run(["demo"], {"LSM_MODELS_DIR": str(tmp_path)}) == 1
    assert "run lsm pull smollm2 gemma3-270m" in capsys.readouterr().err


@pytest.fixture
def running_demo(real_model: Callable[[str], Path], tmp_path: Path) -> subprocess.Popen[str]:
    """The demo with the real models on an arena of its own, up to the moment when it names the page."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {**os.environ, "LSM_MODELS_DIR": str(real_model("smollm2").parent), "LSM_ARENA": str(tmp_path / "arena")}
    assert real_model("gemma3").exists()
    command = [sys.executable, "-m", "lsm_cli.main", "demo", "--port", str(port)]
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def page_address(demo: subprocess.Popen[str]) -> str:
    assert demo.stdout is not None
    seen = []
    for line in demo.stdout:
        seen.append(line)
        if match := re.search(r"Open (http://127\.0\.0\.1:\d+/\S*) ", line):
            return match[1]
    raise AssertionError(f"the demo ended: {''.join(seen)}")


@pytest.mark.slow
def test_interrupt_ends_everything(running_demo: subprocess.Popen[str]) -> None:
    """make run: ctrl-C ends both servers in order, with status 0, and nothing is left running."""
    with running_demo as demo:
        page_address(demo)
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        assert demo.stdout is not None
        rest = demo.stdout.read()
    assert demo.returncode == 0
    assert len(children) == 2
    assert "smollm2 ended with status 0" in rest and "gemma3-270m ended with status 0" in rest
    assert not [child for child in children if child.is_running()]
    assert "did not stop" not in rest


@pytest.mark.slow
def test_killed_supervisor_takes_its_servers_along(running_demo: subprocess.Popen[str]) -> None:
    """make run: kill -9 of the supervisor leaves no server that nobody can see."""
    with running_demo as demo:
        page_address(demo)
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.kill()
    _, alive = psutil.wait_procs(children, timeout=20)
    for child in alive:
        child.kill()
    assert len(children) == 2 and not alive


@pytest.mark.slow
def test_server_that_dies_ends_the_demo(running_demo: subprocess.Popen[str]) -> None:
    """make run: when one server is gone the other one is ended too, and the status says that something went wrong."""
    with running_demo as demo:
        page_address(demo)
        psutil.Process(demo.pid).children()[0].kill()
        assert demo.stdout is not None
        rest = demo.stdout.read()
    assert demo.returncode == 1
    assert "ended with status -9" in rest and "ended with status 0" in rest
