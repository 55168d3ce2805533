"""Style is a test: a banned word names what to write instead.  The patterns are split, so that this file does not find itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "transports", "cffi_build", "specs", "tests", "docs", ".ci")
SOURCES = frozenset({".py", ".c", ".h", ".cpp", ".hpp", ".js", ".css", ".html", ".pml", ".txt", ".toml", ".md", ".lock", ""})
MAX_LINES = 400
COUNTED = frozenset({".py", ".c", ".h", ".cpp", ".hpp", ".js"})
CODE = ("src/", "transports/", "cffi_build/", "specs/")
PRINTERS = ("transports/lsm_cli/", "transports/lsm_mcp/command.py", "src/lsm/__init__.py")  # the last one in its example only


@dataclass(frozen=True)
class Ban:
    """Files whose name starts with one of `where` (all if empty) and with none of `but` must not match `pattern`."""

    pattern: str
    instead: str
    where: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


TIMED = ("src/", "transports/", "tests/", "specs/")
BANS = (
    Ban(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", "do it now, or say in the docs that it is missing"),
    Ban(r"\bNotImplemented" r"Error\b", "write it, or refuse with lsm.errors.NotSupported", CODE),
    Ban(r"\btime\.sl" r"eep\(", "wait for an event, a descriptor or a process", TIMED, ("tests/bench/",)),
    Ban(r"(?<![\w.])pr" r"int\(", "log it, or return it", ("src/", "transports/"), PRINTERS),
    Ban(r"^\s*except" r":", "name the exceptions"),
    Ban(r"\b(lo" r"ckf\(|F_SE" r"TLK)", "only flock: record locks vanish at any close of the file (design 3)", CODE),
    Ban(r"/wo" r"rk/|/ro" r"ot/", "no path of one machine belongs here"),
    Ban(r"py" r"pi\.org|python" r"hosted", "the user's pip knows its index; none is named here"),
)


def texts() -> Iterator[tuple[str, list[str]]]:
    """Name and lines of every text file of ours."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SOURCES]
    found += [path for path in ROOT.iterdir() if path.suffix in SOURCES and path.name != ".git"]  # a file, in a worktree
    for path in found:
        if path.is_file() and "__pycache__" not in path.parts:
            try:
                yield path.relative_to(ROOT).as_posix(), path.read_text().splitlines()
            except UnicodeDecodeError:  # a fixture of bytes
                continue


def breaches(ban: Ban, name: str, lines: list[str]) -> list[str]:
    if (ban.where and not name.startswith(ban.where)) or (ban.but and name.startswith(ban.but)):
        return []
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if re.search(ban.pattern, line)]


@pytest.mark.parametrize("ban", BANS, ids=lambda ban: ban.instead)
def test_banned_word(ban: Ban) -> None:
    """Anchors, habit 12: each ban names the replacement."""
    assert [breach for name, lines in texts() for breach in breaches(ban, name, lines)] == [], ban.instead


def test_no_file_is_two() -> None:
    """Design 1: a file that passes 400 lines is asking to be two."""
    long = {name: len(lines) for name, lines in texts() if Path(name).suffix in COUNTED and len(lines) > MAX_LINES}
    assert long == {}


def test_every_ban_can_be_broken() -> None:
    """Anchors, habit 8: the check is awake; each pattern finds a line that was written to break it."""
    lines = [
        "# TO" "DO",
        "raise NotImplemented" "Error",
        "time.sl" "eep(1)",
        "pr" "int(1)",
        "    except" ":",
        "fcntl.lo" "ckf(f, 1)",
        "cd /wo" "rk/main",
        "index https://py" "pi.org/simple",
    ]  # fmt: skip
    for ban, line in zip(BANS, lines, strict=True):
        assert breaches(ban, "src/lsm/x.py", [line]) == [f"src/lsm/x.py:1: {line.strip()}"]
    assert breaches(BANS[3], "transports/lsm_cli/x.py", [lines[3]]) == []
