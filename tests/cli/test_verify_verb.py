"""`lsm verify` and `lsm graph`: what is shown, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lsm_cli.main import run

from lsm.machines import MACHINES
from lsm.machines.diagram import diagram
from lsm.verify import Record
from tests.verify.scribe import Scribe, handed_on


def line(record: Record) -> str:
    fields = {"t_ns": record.t_ns, "pid": record.pid, "run": record.run, "machine": record.machine, "subject": record.subject}
    fields |= {"from": record.source, "event": record.event, "facts": record.facts, "to": record.target, "do": record.effects}
    return json.dumps(fields) + "\n"


def written(path: Path, scribe: Scribe) -> str:
    path.write_text("".join(map(line, scribe.records)))
    return str(path)


def test_a_lawful_trace_is_a_line_for_each_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", written(tmp_path / "t", handed_on())], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[:2] for text in lines] == [["holds", "alone"], ["holds", "together"], ["holds", "time"]]


def test_the_first_check_that_fails_ends_with_its_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "t", handed_on())
    assert run(["verify", file, "--min-hold-ms", "200"], {}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [text.split()[:2] for text in lines[:3]] == [["holds", "alone"], ["holds", "together"], ["FAILS", "time"]]
    assert lines[-2].endswith(f"token: awake --look rested wanted due--> draining  ({file}:10)")
    assert lines[-1] == "'a' gave the device away after 100.0 ms; the minimum hold is 200 ms"


def test_the_quantum_is_an_option(tmp_path: Path) -> None:
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.look(120, 1, due=False)
    scribe.look(1500, 1, due=False)
    file = written(tmp_path / "t", scribe)
    assert run(["verify", file], {}) == 0
    assert run(["verify", file, "--quantum-ms", "300"], {}) == 1


def test_coverage_lists_what_was_never_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", written(tmp_path / "t", handed_on()), "--coverage"], {}) == 0
    out = capsys.readouterr().out
    total = sum(len(machine.edges) for machine in MACHINES.values())
    assert f"never taken here: {total - 9} edges" in out
    assert "  token: doorway --> doorway: door_busy / door_try" in out
    assert "  token: waking --> awake: mapped [!budgeted]" not in out


def test_a_torn_line_is_told_and_a_wrong_one_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t"
    written(file, handed_on())
    file.write_text(file.read_text() + "{")
    assert run(["verify", str(file)], {}) == 0
    assert f"{file}:16: the last line is torn" in capsys.readouterr().out
    file.write_text(file.read_text() + "\n")
    assert run(["verify", str(file)], {}) == 1
    assert f"lsm: {file}:16: not a line of JSON" in capsys.readouterr().err


def test_graph_draws_one_machine_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "sleep"], {}) == 0
    assert capsys.readouterr().out.splitlines() == ["%% sleep", *diagram(MACHINES["sleep"])]
    assert run(["graph"], {}) == 0
    out = capsys.readouterr().out
    assert [text[3:] for text in out.splitlines() if text.startswith("%% ")] == list(MACHINES)


def test_graph_names_the_machines_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph", "nix"], {}) == 1
    assert "there is no machine 'nix'; there are: token, sleep" in capsys.readouterr().err
