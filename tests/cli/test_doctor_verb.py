"""`lsm doctor`: what is there, what is wrong, and the remedy; status 1 where anything is wrong."""

from __future__ import annotations

import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from lsm_cli.main import run

from lsm.doctor import Finding, examine
from tests.engine.gguf_bytes import gguf


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "good.gguf").write_bytes(gguf())
    return {"LSM_MODELS_DIR": str(tmp_path / "models"), "LSM_ARENA": str(tmp_path / "arena")}


def wrong(environ: dict[str, str]) -> list[Finding]:
    return [finding for finding in examine(environ) if finding.remedy]


def test_sound_machine(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Build: what was built, which devices there are and how much memory, which features are on."""
    assert run(["doctor"], environ) == 0
    text = capsys.readouterr().out
    assert "llama.cpp" in text and "SSE42" in text
    assert "CPU (cpu)" in text and "GB free of" in text
    assert f"1 in {environ['LSM_MODELS_DIR']}" in text
    assert "all is well" in text


def test_arena_that_others_can_enter(environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 3: an arena with the wrong mode; the remedy is the command that mends it."""
    (tmp_path / "arena").mkdir()
    os.chmod(tmp_path / "arena", 0o755)
    assert run(["doctor"], environ) == 1
    text = capsys.readouterr().out
    assert "WRONG arena" in text and f"remedy: run: chmod 700 {tmp_path / 'arena'}" in text
    assert "1 of" in text


def test_broken_model_file(environ: dict[str, str], tmp_path: Path) -> None:
    """Build: a model file that no server could load."""
    (tmp_path / "models" / "half.gguf").write_bytes(gguf()[:-1])
    (finding,) = wrong(environ)
    assert finding.subject == "models" and "half.gguf ends 1 bytes before" in finding.text


def test_disk_almost_full(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: no room for a model."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
    (finding,) = wrong(environ)
    assert finding.subject == "disk" and "LSM_MODELS_DIR" in finding.remedy


def test_compiled_part_that_does_not_load(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: the module is missing; the rest is examined all the same."""
    monkeypatch.setitem(sys.modules, "lsm.native.library", None)
    (finding,) = wrong(environ)
    assert finding.subject == "build" and "pip install" in finding.remedy
    assert {"arena", "models", "disk"} <= {finding.subject for finding in examine(environ)}


def test_processor_that_needs_the_baseline(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: code for a better processor was built; it runs, slowly, and the doctor says so."""
    from lsm.native import library

    monkeypatch.setattr(library, "using_baseline", True)
    (finding,) = wrong(environ)
    assert finding.subject == "processor" and "reinstall" in finding.remedy
