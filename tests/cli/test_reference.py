"""D.4: the reference of the command line is made from the settings, and is fresh."""

from __future__ import annotations

from pathlib import Path

from lsm.config import SETTINGS, help_text, markdown

ROOT = Path(__file__).parents[2]


def test_reference_page_is_fresh() -> None:
    """D.4: docs/cli.md is what `python -m lsm.config` writes."""
    assert (ROOT / "docs" / "cli.md").read_text() == markdown(), "run: python -m lsm.config > docs/cli.md"


def test_help_and_reference_name_every_flag_and_variable() -> None:
    """D.4: nothing is left out."""
    shown, page = help_text(), markdown().replace("\\|", "|")
    for entry in SETTINGS:
        for word in (*entry.spellings, *entry.env):
            assert word in shown and word in page
