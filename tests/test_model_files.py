"""Which file the name of a model means: the same at every door."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from lsm_cli import server

import lsm
from lsm.errors import ConfigError, ModelFileError
from lsm.models import models_directory, resolve


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A current folder with `here.gguf`, a model folder with `here.gguf` and `pulled.gguf`."""
    for name in ("current/here.gguf", "pulled/here.gguf", "pulled/pulled.gguf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "current")
    monkeypatch.setenv("LSM_MODELS_DIR", str(tmp_path / "pulled"))
    return dict(os.environ)


def test_bare_name_means_the_current_folder_then_the_model_folder(environ: dict[str, str], tmp_path: Path) -> None:
    """C.1: what `lsm pull` brought is found by its name; a file at hand is nearer."""
    assert resolve(Path("here.gguf"), environ) == Path("here.gguf")
    assert resolve(Path("pulled.gguf"), environ) == tmp_path / "pulled" / "pulled.gguf"


@pytest.mark.parametrize("path", ["folder/pulled.gguf", "../pulled.gguf", "/pulled.gguf"])
def test_path_with_a_folder_is_taken_at_its_word(path: str, environ: dict[str, str]) -> None:
    """C.1: who names a folder means that folder, whether the file is there or not."""
    assert resolve(Path(path), environ) == Path(path)


def test_name_that_is_nowhere_says_where_it_was_sought(environ: dict[str, str], tmp_path: Path) -> None:
    """Errors: both folders, and the two commands that help."""
    with pytest.raises(ModelFileError) as caught:
        resolve(Path("none.gguf"), environ)
    assert f"({tmp_path / 'current'})" in caught.value.message and f"({tmp_path / 'pulled'})" in caught.value.message
    assert "lsm models" in caught.value.message and "lsm pull" in caught.value.message


def test_current_folder_that_was_deleted(environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors: a program in a deleted folder still finds pulled models, and is told of its folder where it does not."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert resolve(Path("pulled.gguf"), environ) == tmp_path / "pulled" / "pulled.gguf"
    with pytest.raises(ModelFileError, match="which was deleted"):
        resolve(Path("none.gguf"), environ)


def test_model_folder_below_the_home_of_nobody() -> None:
    """Errors: LSM_MODELS_DIR=~nobody-at-all/models is named."""
    with pytest.raises(ConfigError, match="LSM_MODELS_DIR=~nobody-at-all/models: there is no such home folder"):
        models_directory({"LSM_MODELS_DIR": "~nobody-at-all/models"})


async def test_every_host_finds_a_pulled_model_by_its_name(
    tiny_llama: Path, tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C.1: `lsm.api.open_host`, through which all doors go, has the real path."""
    monkeypatch.setenv("LSM_MODELS_DIR", str(tiny_llama.parent))
    settings = lsm.Settings(model_paths=(Path(tiny_llama.name),), arena=tmp_path / "arena", n_ctx=64)
    async with lsm.api.open_host(settings) as host:
        assert host.model("llama").path == str(tiny_llama)


def test_the_library_says_where_it_sought(environ: dict[str, str], tmp_path: Path) -> None:
    """C.1: `lsm.open`."""
    with pytest.raises(ModelFileError, match="nor in the model folder"), lsm.open({"a": "none.gguf"}, arena=tmp_path / "arena"):
        pass


def test_the_server_says_where_it_sought(environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """C.1: `lsm-server -m`."""
    assert server.run(["-m", "none.gguf", "--port", "0", "--arena", str(tmp_path / "arena")], environ) == 1
    assert f"nor in the model folder ({tmp_path / 'pulled'})" in capsys.readouterr().err


@pytest.mark.slow
def test_the_mcp_server_says_where_it_sought(environ: dict[str, str], tmp_path: Path) -> None:
    """C.1: `lsm-mcp -m`; a client starts it in a folder that the user does not know."""
    command = [sys.executable, "-m", "lsm_mcp", "-m", "none.gguf", "--arena", str(tmp_path / "arena")]
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, stdin=subprocess.DEVNULL)
    assert ended.returncode == 1
    assert f"in the current folder ({tmp_path / 'current'}), nor in the model folder ({tmp_path / 'pulled'})" in ended.stderr
