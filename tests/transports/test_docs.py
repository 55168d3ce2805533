"""The examples of docs/python.md and docs/mcp.md run as they stand, on the scripted host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import lsm_embed
import pytest
from lsm_cli.catalogue import DEMO_MODELS

import lsm
from tests.transports.limits import LIMIT_S
from tests.transports.scripted_host import open_scripted_host

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_examples_for_python_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Design 7: what the page shows is what works; blocks are read from top to bottom."""
    monkeypatch.setattr(lsm, "open", partial(lsm_embed.open, open_host=open_scripted_host))
    monkeypatch.setattr(lsm, "open_async", partial(lsm_embed.open_async, open_host=open_scripted_host))
    names: dict[str, Any] = {}
    examples = blocks("python.md", "python")
    assert len(examples) == 5
    for example in examples:
        exec(compile(example, "docs/python.md", "exec"), names)
    out = capsys.readouterr().out
    assert "What is a lock?" in out
    assert "did you mean temperature?" in out
    assert "asleep" in out


def test_every_name_that_the_page_gives_to_lsm_exists() -> None:
    """Design 7: the prose too."""
    names = set(re.findall(r"\blsm\.(\w+)", (DOCS / "python.md").read_text()))
    assert {name for name in names if not hasattr(lsm, name)} == set()


@pytest.mark.slow
def test_the_example_for_mcp_runs(tmp_path: Path) -> None:
    """Part 4 of first light: the client of the page starts a real process and is answered."""
    path = os.pathsep.join(filter(None, sys.path))
    command = tmp_path / "lsm-mcp"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec {sys.executable} -m tests.transports.scripted_mcp "$@"\n')
    command.chmod(0o755)
    [example] = blocks("mcp.md", "python")
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, env=environment, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "What is a lock?\n"), ended.stderr


def test_the_configuration_for_mcp_is_a_command_line_that_we_take() -> None:
    """C: the flags of the page exist."""
    [example] = blocks("mcp.md", "json")
    entry = json.loads(example)["mcpServers"]["lsm"]
    settings = lsm.config.parse_arguments(entry["args"], {})
    assert (entry["command"], [model.alias for model in settings.models]) == ("lsm-mcp", ["smollm2"])


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/mcp.md"])
def test_model_files_of_the_examples_are_those_that_lsm_pull_fetches(page: str) -> None:
    """C.1: named without a folder, or in the model folder, so that the examples work from everywhere."""
    paths = re.findall(r"[\w~./-]+\.gguf\b", (DOCS.parent / page).read_text())
    assert paths
    pulled = {model.file_name for model in DEMO_MODELS.values()}
    assert {path.removeprefix("~/.cache/lsm-server/models/") for path in paths} <= pulled
