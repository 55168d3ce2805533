"""`lsm models`: what is there, for people and for programs; broken files with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lsm_cli.main import run

from lsm.models import ModelFile, describe, find_models, models_directory
from tests.engine.gguf_bytes import gguf


def test_folder_comes_from_the_environment() -> None:
    """Command line: LSM_MODELS_DIR, then XDG_CACHE_HOME, then the home folder."""
    assert models_directory({"LSM_MODELS_DIR": "/m", "XDG_CACHE_HOME": "/c"}) == Path("/m")
    assert models_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/lsm-server/models")
    assert models_directory({}) == Path.home() / ".cache/lsm-server/models"


def test_sound_and_broken_files(tmp_path: Path) -> None:
    """Command line: alias, size, architecture and name; a broken file is listed with its fault."""
    (tmp_path / "good.gguf").write_bytes(gguf())
    (tmp_path / "half.gguf").write_bytes(gguf()[:-1])
    (tmp_path / ".hidden.gguf").write_bytes(gguf())
    (tmp_path / "notes.txt").write_text("")
    good, half = find_models([tmp_path, tmp_path / "good.gguf"])
    assert good == ModelFile(tmp_path / "good.gguf", len(gguf()), "llama", "tiny")
    assert good.alias == "good"
    assert half.fault.startswith("ends 1 bytes before the end")
    assert half.size_bytes == len(gguf()) - 1


def test_missing_file_is_an_answer(tmp_path: Path) -> None:
    """Command line: a path that is not there is listed as such."""
    assert describe(tmp_path / "none.gguf").fault.startswith("there is no such file")


def test_json_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: `lsm models --json`."""
    (tmp_path / "good.gguf").write_bytes(gguf())
    (tmp_path / "web.gguf").write_text("<html>")
    assert run(["models", "--json"], {"LSM_MODELS_DIR": str(tmp_path)}) == 0
    good, web = json.loads(capsys.readouterr().out)
    path = str(tmp_path / "good.gguf")
    size_bytes = len(gguf())
    assert good == {"alias": "good", "path": path, "size_bytes": size_bytes, "architecture": "llama", "name": "tiny", "fault": None}
    assert web["architecture"] is None and "web page" in web["fault"]


def test_table_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: `lsm models PATH`; an empty folder names the remedy."""
    (tmp_path / "good.gguf").write_bytes(gguf())
    empty = {"LSM_MODELS_DIR": str(tmp_path / "none")}
    assert run(["models", str(tmp_path)], empty) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["alias", "size", "architecture", "name", "path"]
    assert row.split() == ["good", "0.0", "MB", "llama", "tiny", str(tmp_path / "good.gguf")]
    assert run(["models"], empty) == 0
    assert "lsm pull smollm2" in capsys.readouterr().out
