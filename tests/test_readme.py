"""The README says nothing that is not there: links, folders, commands, flags, and the names in its example."""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from email import message_from_string
from pathlib import Path

import pytest
from lsm_cli.catalogue import DEMO_MODELS
from lsm_cli.main import _parser

from cffi_build import backend
from lsm.config import LIST_DEVICES
from lsm.config.settings import BY_SPELLING

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Documentation: each link between files of this repository."""
    place = ROOT / page
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", place.read_text()) if "://" not in target]
    assert [target for target in targets if target and not (place.parent / target).exists()] == []


def test_folders_and_files_of_the_readme_exist() -> None:
    """Documentation: the table of folders, and every path that stands in backquotes."""
    folders = ("src", "docs", "tests", "transports", "specs", "cffi_build")
    named = [name for name in re.findall(r"`([\w/.-]+)`", TEXT) if name.partition("/")[0] in folders]
    assert len(named) >= 12
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_table_of_commands_is_complete() -> None:
    """Documentation: every command that is installed and every verb of `lsm` has its row, and no other has."""
    rows = re.findall(r"^\| `(lsm[\w-]*(?: [a-z]+)?)", TEXT, re.MULTILINE)
    verbs = [f"lsm {verb}" for verb in _parser()[1]]
    assert sorted(rows) == sorted([*verbs, *(script for script in PROJECT["scripts"] if script != "lsm")])


def test_commands_of_the_readme_are_understood() -> None:
    """Documentation: flags, model names, extras and targets of make."""
    for flags in re.findall(r"^ {4}lsm-server (.+?)(?: {2,}#.*)?$", TEXT, re.MULTILINE):
        assert {word for word in flags.split() if word.startswith("-")} <= {*BY_SPELLING, LIST_DEVICES}
    pulled = re.findall(r"^ {4}lsm pull (.+)$", TEXT, re.MULTILINE)
    assert pulled and all(set(names.split()) <= set(DEMO_MODELS) for names in pulled)
    extras = re.findall(r"pip install '\.\[(\w+)\]'", TEXT)
    assert extras and set(extras) <= set(PROJECT["optional-dependencies"])
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^ {4}make (\w+)", TEXT, re.MULTILINE))
    assert named and named <= targets


def test_example_for_python_is_that_of_the_package() -> None:
    """Documentation: the README, the page about Python and the docstring of the package show one example that is tested once."""
    [block] = re.findall(r"^( {4}import lsm\n(?: {4}.*\n|\n)+)", TEXT, re.MULTILINE)
    example = ast.dump(ast.parse(textwrap.dedent(block)))
    [shown] = re.findall(r"^( {4}import lsm\n(?: {4}.*\n|\n)+)", (ROOT / "src/lsm/__init__.py").read_text(), re.MULTILINE)
    assert example == ast.dump(ast.parse(textwrap.dedent(shown)))


@pytest.mark.slow
def test_package_carries_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: an index, and `pip show`, tell what this is."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    folder = backend.prepare_metadata_for_build_wheel(str(tmp_path))
    metadata = message_from_string((tmp_path / folder / "METADATA").read_text())
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert metadata.get_payload().strip() == TEXT.strip()
