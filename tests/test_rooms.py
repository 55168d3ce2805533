"""Design 1: who may import whom.  A room is a folder or a module; what is not listed for it is not allowed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILED = "lsm.native._native"
STDLIB = frozenset(sys.stdlib_module_names)
FACE = ("lsm.api", "lsm.errors", "lsm.config")  # what a door sees of lsm

ALLOWED: dict[str, tuple[str, ...]] = {
    "src/lsm/__init__.py": ("lsm.api", "lsm.config", "lsm.errors", "lsm_embed"),
    "src/lsm/errors.py": (),
    "src/lsm/values.py": ("numpy",),
    "src/lsm/tuning.py": (),
    "src/lsm/keeping.py": (),
    "src/lsm/speculating.py": (),
    "src/lsm/batching.py": (),
    "src/lsm/gbnf.py": (),
    "src/lsm/config": (
        "lsm.errors",
        "lsm.values",
        "lsm.tuning",
        "lsm.keeping",
        "lsm.speculating",
        "lsm.batching",
        "lsm.gbnf",
        "lsm.config",
    ),
    "src/lsm/models.py": ("lsm.errors", "lsm.engine.gguf_header"),
    "src/lsm/doctor.py": ("lsm.errors", "lsm.models", "lsm.arena", "lsm.config", "lsm.native.library"),
    "src/lsm/api.py": ("lsm.errors", "lsm.values", "lsm.config", "lsm.models", "lsm.runtime.host", "lsm.native.library"),
    "src/lsm/machines": ("lsm.machines",),
    "src/lsm/verify": ("lsm.errors", "lsm.machines", "lsm.verify"),
    "src/lsm/arena": ("lsm.errors", "lsm.arena"),
    "src/lsm/native": ("lsm.errors", "lsm.values", "lsm.tuning", "lsm.native", "numpy", "cffi", COMPILED),
    "src/lsm/engine": (
        "lsm.errors",
        "lsm.values",
        "lsm.tuning",
        "lsm.keeping",
        "lsm.speculating",
        "lsm.batching",
        "lsm.gbnf",
        "lsm.machines",
        "lsm.native",
        "lsm.engine",
        "numpy",
        "llguidance",
    ),
    "src/lsm/chat": ("lsm.errors", "lsm.values", "lsm.chat", "jinja2"),
    "src/lsm/runtime": ("lsm", "trio", "transitions", "numpy", "httpcore"),
    "transports/lsm_http": (*FACE, "lsm_http", "trio", "hypercorn", "starlette", "msgspec", "h11"),
    "transports/lsm_mcp": (*FACE, "lsm_mcp", "lsm_embed", "trio", "mcp", "mcp_types", "anyio", "msgspec"),
    "transports/lsm_embed": (*FACE, "lsm_embed", "trio", "numpy", "outcome"),
    "transports/lsm_cli": (*FACE, "lsm.models", "lsm.doctor", "lsm.machines", "lsm.verify", "lsm_cli", "lsm_http.serve", "trio"),
}
FILES = sorted(path for folder in ("src", "transports") for path in (ROOT / folder).rglob("*.py"))


def room_of(path: Path) -> str | None:
    name = path.relative_to(ROOT).as_posix()
    return next((room for room in ALLOWED if name == room or name.startswith(f"{room}/")), None)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything the file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import hides the room"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_allowed(name: str, allowed: tuple[str, ...]) -> bool:
    if name.split(".")[0] in STDLIB:
        return True
    return any(name == other or name.startswith(f"{other}.") for other in allowed)


@pytest.mark.parametrize("room", ALLOWED)
def test_room_imports_only_what_it_may(room: str) -> None:
    """Design 1: only runtime waits (trio, transitions), only native knows the compiled module, doors see the face alone."""
    files = [path for path in FILES if room_of(path) == room]
    assert files, f"{room} is empty: take it out of ALLOWED"
    imports = [(path, line, name) for path in files for line, name in imports_of(path)]
    foreign = [f"{path.relative_to(ROOT)}:{line}: {name}" for path, line, name in imports if not is_allowed(name, ALLOWED[room])]
    assert not foreign, f"{room} may import {ALLOWED[room] or 'the standard library'}"


def test_every_file_lives_in_a_room() -> None:
    """Design 1: a line of code knows its room."""
    assert [str(path) for path in FILES if room_of(path) is None] == []


def test_the_rule_sees_what_it_forbids(tmp_path: Path) -> None:
    """Design 1: the check is awake; a hidden import, a submodule and a renamed one are found."""
    file = tmp_path / "f.py"
    file.write_text("import os\nfrom lsm import native\ndef f():\n    import trio.lowlevel as t\n")
    names = [name for _, name in imports_of(file)]
    assert names == ["os", "lsm.native", "trio.lowlevel"]
    assert [is_allowed(name, ALLOWED["src/lsm/arena"]) for name in names] == [True, False, False]
