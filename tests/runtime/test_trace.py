"""The recorder: one line for each edge, several writers, and a full disk does no harm."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lsm.machines.sleep import SLEEP
from lsm.runtime import trace
from lsm.runtime.executor import Executor, Fired
from lsm.runtime.trace import Recorder

FIRED = Fired("sleep", "m", "asleep", "demand", {"demanded": True}, "waking", ("token_need",), 7)

WRITER = """
import sys
from lsm.runtime.executor import Fired
from lsm.runtime.trace import Recorder
recorder = Recorder(sys.argv[1])
sys.stdin.readline()
for k in range(200):
    recorder(Fired("sleep", sys.argv[2] * 300, "asleep", "demand", {}, "waking", (), k))
"""


def test_a_line_holds_everything_that_step_needs(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    recorder = Recorder(path)
    sleep = Executor(SLEEP, "m", recorder)
    sleep.fire("demand", demanded=True)
    sleep.fire("demand", demanded=True)
    sleep.close()
    recorder.close()
    (line,) = path.read_text().splitlines()
    record = json.loads(line)
    assert record.pop("t_ns") > record.pop("run") > 0
    assert record == {
        "pid": os.getpid(),
        "machine": "sleep",
        "subject": "m",
        "from": "asleep",
        "event": "demand",
        "facts": {"demanded": True},
        "to": "waking",
        "do": ["token_need"],
    }


def test_an_existing_trace_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for _ in range(2):
        recorder = Recorder(path)
        recorder(FIRED)
        recorder.close()
        recorder.close()
        recorder(FIRED)
    assert len(path.read_text().splitlines()) == 2


def test_processes_share_one_file_without_tearing_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    command = [sys.executable, "-c", WRITER, str(path)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, env=environ) for name in "ab"]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    assert [writer.wait(timeout=30) for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for name, writer in zip("ab", writers, strict=True):
        assert [r["t_ns"] for r in records if r["pid"] == writer.pid] == list(range(200))
        assert {r["subject"] for r in records if r["pid"] == writer.pid} == {name * 300}


def test_a_full_disk_ends_the_trace_and_not_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path / "trace")

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trace.os, "write", full)
    recorder(FIRED)
    recorder(FIRED)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "No space left" in caplog.text


def test_a_path_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "missing" / "trace")
