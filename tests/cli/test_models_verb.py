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


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_named_file_that_is_missing_or_broken_fails(option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: status 1 for what the user named; a broken file that only lies in the model folder is listed."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "good.gguf").write_bytes(gguf())
    (folder / "half.gguf").write_bytes(gguf()[:-1])
    environ = {"LSM_MODELS_DIR": str(folder)}
    for named, status in ((), 0), (("good.gguf",), 0), (("half.gguf",), 1), (("none.gguf",), 1), (("good.gguf", "none.gguf"), 1):
        assert run(["models", *option, *(str(folder / name) for name in named)], environ) == status, named
        out = capsys.readouterr().out
        assert out.count(str(folder / "half.gguf")) == 1 and ("there is no such file" in out) == ("none.gguf" in named)


def test_bare_name_is_sought_as_servers_seek_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C.1: `lsm models NAME` and `-m NAME` mean the same file."""
    (tmp_path / "good.gguf").write_bytes(gguf())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run(["models", "good.gguf"], {"LSM_MODELS_DIR": str(tmp_path)}) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_model_folder_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: not an empty folder."""
    (tmp_path / "file").touch()
    assert run(["models"], {"LSM_MODELS_DIR": str(tmp_path / "file")}) == 1
    assert "is not a folder: name another one in LSM_MODELS_DIR" in capsys.readouterr().err


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
