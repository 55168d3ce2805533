"""What `lsm-server --help` prints and what docs/cli.md says, both made from the settings.

`python -m lsm.config > docs/cli.md` renews the page; a test compares them.
"""

from __future__ import annotations

import textwrap

from lsm.config.refused import REFUSED
from lsm.config.setting import Setting
from lsm.config.settings import GROUPS, SETTINGS

USAGE = "lsm-server -m FILE [-m FILE ...] [flags]"
WIDTH = 110
INDENT = " " * 6
OTHER = """\
Other:
  -h, --help
      this text
  --version
      version of lsm-server and of the llama.cpp in it
  --list-devices
      the GPUs, as --device names them"""


def help_text() -> str:
    blocks = [f"usage: {USAGE}", "Environment names stand in brackets; the command line wins over them. In long flags _ equals -."]
    for group in GROUPS:
        blocks.append("\n".join([f"{group}:", *(_help_entry(entry) for entry in SETTINGS if entry.group == group)]))
    blocks.append(OTHER)
    return "\n\n".join(blocks) + "\n"


def markdown() -> str:
    lines = [
        "<!-- Generated from src/lsm/config by `python -m lsm.config > docs/cli.md`: do not edit. -->",
        "# Command line of lsm-server",
        "",
        f"`{USAGE}`",
        "",
        "Environment variables count where the command line is silent. In long flags `_` equals `-`, and `--flag=value` is `--flag value`.",
        "A flag given twice: a warning, and the last one counts, except where the table says *repeatable*.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group}", "", "| flag | default | environment | meaning |", "|---|---|---|---|"]
        lines += [_table_row(entry) for entry in SETTINGS if entry.group == group]
    lines += ["", "## Flags of llama-server that are refused", "", "Each ends the start with the reason; none is swallowed.", ""]
    lines += _refused_rows()
    return "\n".join(lines) + "\n"


def _spellings(entry: Setting) -> str:
    value = f" {entry.read.metavar}" if entry.flags else ""
    return ", ".join(entry.flags) + value + (", " if entry.flags and entry.constants else "") + ", ".join(entry.constants)


def _default(entry: Setting) -> str:
    if entry.default_text is not None:
        return entry.default_text
    if entry.default is None or entry.default in ("", ()):
        return "none"
    if isinstance(entry.default, bool):
        return "on" if entry.default else "off"
    text = f"{entry.default:g}" if isinstance(entry.default, float) else str(entry.default)
    return f"{text} {entry.unit}".rstrip()


def _help_entry(entry: Setting) -> str:
    names = f" [{', '.join(entry.env)}]" if entry.env else ""
    again = " (repeatable)" if entry.collect else ""
    text = f"{entry.help}{again} (default: {_default(entry)}){names}"
    return "\n".join(
        [f"  {_spellings(entry)}", textwrap.fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False)]
    )


def _table_row(entry: Setting) -> str:
    cells = (
        f"`{_spellings(entry)}`",
        _default(entry),
        "<br>".join(f"`{name}`" for name in (*entry.env, *entry.env_off)),
        entry.help + ("; *repeatable*" if entry.collect else ""),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _refused_rows() -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for flag, reason in REFUSED.items():
        by_reason.setdefault(reason, []).append(f"`{flag}`")
    return [f"- {', '.join(flags)} {reason}" for reason, flags in by_reason.items()]
