"""The table, and that nothing wrong ends with 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import soak as command
from tests.soak.book import KINDS
from tests.soak.report import Report, spread


def report(*violations: tuple[str, str]) -> Report:
    return Report(
        seed=7, servers=2, seconds=1.0, handoffs=60, counts={"kills": 3}, deaths={"awake": 2, "waking": 1}, looks=1000,
        trace=("alone: 12 edges",), durations_ms=[1.0], slowest_s=2.0, violations=violations,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_violation_fails(kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Real soak: exit code, seed."""
    monkeypatch.setattr(command, "soak", lambda folder, *_: report((kind, "this happened")))
    monkeypatch.setattr("sys.argv", ["soak", "--servers", "2", "--seed", "7"])
    assert command.main() == 1
    said = capsys.readouterr().out
    assert "seed 7" in said and f"{kind}: this happened" in said
    assert (kind, "1") in report((kind, "this happened")).rows()


def test_without_violations_all_is_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs: list[tuple[int, ...]] = []

    def soak(folder: Path, *how: int) -> Report:
        runs.append(how)
        return report()

    monkeypatch.setattr(command, "soak", soak)
    monkeypatch.setattr("sys.argv", ["soak", "--servers", "2", "3", "--handoffs", "60", "--seconds", "9", "--seed", "7"])
    assert command.main() == 0
    assert runs == [(2, 60, 9.0, 7), (3, 60, 9.0, 7)]
    assert "awake 2, waking 1" in capsys.readouterr().out


def test_models_and_traces_are_kept_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def soak(folder: Path, *_: int) -> Report:
        (folder / "trace.ndjson").touch()
        return report()

    monkeypatch.setattr(command, "soak", soak)
    monkeypatch.setattr("sys.argv", ["soak", "--servers", "2", "3", "--keep", str(tmp_path / "kept")])
    assert command.main() == 0
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.ndjson")} == {
        "kept/2-servers/trace.ndjson",
        "kept/3-servers/trace.ndjson",
    }


def test_spread() -> None:
    assert spread([]) == "none"
    assert spread([float(n) for n in range(1, 101)]) == "median 50.5 ms, p95 95.0 ms (100 of them)"
