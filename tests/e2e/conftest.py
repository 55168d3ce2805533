from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .servers import Server

Start = Callable[..., Server]


@pytest.fixture
def arena(tmp_path: Path) -> Path:
    return tmp_path / "arena"


@pytest.fixture
def start(arena: Path, real_model: Callable[[str], Path]) -> Iterator[Start]:
    """`start("smollm2", *flags)`: a server of that model on the arena of this test; ended in order afterwards."""
    with ExitStack() as servers:

        def start(name: str, *flags: str, wait: bool = True) -> Server:
            return servers.enter_context(Server(arena, real_model(name), name, *flags, wait=wait))

        yield start
