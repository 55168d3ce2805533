"""`import lsm`: what it shows, what it costs, and which event loop it wants."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from importlib import metadata

import pytest

import lsm
from lsm.errors import ConfigError
from tests.transports.scripted_host import open_scripted_host


def test_importing_lsm_loads_nothing_heavy() -> None:
    """Design 7: the door is opened when it is used."""
    code = "import sys, lsm; print([name for name in ('trio', 'numpy', 'lsm_embed', 'lsm.native') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_exported_name_exists() -> None:
    """Design 7: what `lsm` promises is there, and nothing that it does not."""
    assert all(getattr(lsm, name) is not None for name in lsm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        lsm.opne  # noqa: B018


def test_on_asyncio_the_async_door_says_what_to_use() -> None:
    """Design 7: the wrong event loop is an error of lsm's, with the way that works."""

    async def use() -> None:
        async with lsm.open_async({"echo": "echo.gguf"}, open_host=open_scripted_host):
            raise AssertionError("opened without trio")

    async def use_thread() -> str:
        models = await asyncio.to_thread(lsm.open, {"echo": "echo.gguf"}, open_host=open_scripted_host)
        answer = await asyncio.to_thread(models["echo"].complete, "hello")
        await asyncio.to_thread(models.close)
        return answer.text

    with pytest.raises(ConfigError, match="needs trio; on asyncio use lsm.open in a thread"):
        asyncio.run(use())
    assert asyncio.run(use_thread()) == "hello"


def test_the_door_shows_no_inside() -> None:
    """Design 7: what `help(lsm.open)` shows is for its users."""
    for door in (lsm.open, lsm.open_async):
        assert "function" not in str(inspect.signature(door))


def test_lsm_knows_its_version() -> None:
    """Design 7: the version of the distribution, read when it is asked for."""
    assert lsm.__version__ == (metadata.version("lsm-server") if is_installed() else "unknown")


def is_installed() -> bool:
    return any(found.metadata["Name"] == "lsm-server" for found in metadata.distributions())
