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


# --- the model folder ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("/proc", "/proc cannot be written"),  # not even root can put a file there
        ("{tmp}/file", "{tmp}/file is not a folder"),
        ("{tmp}/file/models", "{tmp}/file is not a folder"),
        ("/proc/no/models", "/proc cannot be written"),
        ("{tmp}/dangling", "{tmp}/dangling is not a folder"),
    ],
)
def test_model_folder_that_cannot_be_used(folder: str, reason: str, environ: dict[str, str], tmp_path: Path) -> None:
    """Build: what `lsm pull` would run into: no write access, a file in the place of the folder or above it, a link to nowhere."""
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    environ["LSM_MODELS_DIR"] = folder.format(tmp=tmp_path)
    (finding,) = wrong(environ)
    assert finding.subject == "models" and "LSM_MODELS_DIR" in finding.remedy
    assert finding.text.startswith(f"no model can be pulled into {environ['LSM_MODELS_DIR']}: {reason.format(tmp=tmp_path)}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize(("mode", "reason"), [(0o555, "cannot be written"), (0o333, "cannot be listed")])
def test_model_folder_without_permissions(mode: int, reason: str, environ: dict[str, str], tmp_path: Path) -> None:
    """Build: a folder of somebody else's."""
    os.chmod(tmp_path / "models", mode)
    (finding,) = wrong(environ)
    assert reason in finding.text


def test_examination_leaves_nothing_in_the_model_folder(environ: dict[str, str], tmp_path: Path) -> None:
    """Build: that it can be written is found out without a trace, and a missing folder stays missing."""
    assert wrong(environ) == []
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["good.gguf"]
    environ["LSM_MODELS_DIR"] = str(tmp_path / "later" / "models")
    assert wrong(environ) == []
    assert not (tmp_path / "later").exists()


def test_model_folder_below_the_home_of_nobody(environ: dict[str, str]) -> None:
    """Build: LSM_MODELS_DIR=~nobody-at-all."""
    environ["LSM_MODELS_DIR"] = "~nobody-at-all/models"
    (finding,) = wrong(environ)
    assert finding.subject == "models" and "no such home folder" in finding.text and "full path" in finding.remedy


@pytest.mark.parametrize(
    ("content", "is_damaged"),
    [
        (None, False),  # a folder
        (gguf(version=4), False),
        (gguf(version=1), False),
        (b"hello, world" * 4, False),
        (b"<html>", False),
        (b"", True),
        (gguf()[:-1], True),
        (gguf()[:60], True),
        (gguf(n_tensors=2**62), True),
    ],
)
def test_only_damaged_files_are_to_be_deleted(content: bytes | None, is_damaged: bool, environ: dict[str, str], tmp_path: Path) -> None:
    """Build: a folder, a file of a newer version and a text of the user's are sound in their way."""
    place = tmp_path / "models" / "x.gguf"
    if content is None:
        place.mkdir()
    else:
        place.write_bytes(content)
    (finding,) = wrong(environ)
    assert str(place) in finding.text
    assert ("delete it" in finding.remedy) == is_damaged
    assert ("move it out" in finding.remedy) != is_damaged


# --- the arena -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arena", ["", "~nobody-at-all/arena"])
def test_arena_that_is_no_path(arena: str, environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """C: `lsm doctor --arena` refuses what `lsm-server --arena` refuses, as a finding."""
    assert run(["doctor", "--arena", arena], environ) == 1
    assert f"WRONG arena      {arena!r} " in capsys.readouterr().out


def test_empty_name_in_the_environment_is_none(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C: as for the server, LSM_ARENA= is the default arena."""
    environ |= {"LSM_ARENA": "", "LLAMA_VRAM_ARENA": "", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert wrong(environ) == []
    assert (tmp_path / "lsm" / "bell").is_fifo()


@pytest.mark.parametrize("name", ["door.lock", "token.lock", "want.lock"])
def test_folder_in_the_place_of_a_lock_file(name: str, environ: dict[str, str], tmp_path: Path) -> None:
    """S10: whatever a server would trip over when it starts."""
    (tmp_path / "arena" / name).mkdir(parents=True)
    os.chmod(tmp_path / "arena", 0o700)
    (finding,) = wrong(environ)
    assert finding.subject == "arena" and name in finding.text
