"""S10: a wake fails at each of its allocations in turn; a client hears a 503, and the next request is served as if nothing had been."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_adapters import write_lora

from .servers import Server

pytestmark = pytest.mark.slow

REQUEST = {"prompt": list(range(10, 40)), "max_tokens": 12, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def server(tmp_path: Path, tiny_llama: Path, orders: Path) -> Iterator[Server]:
    flags = ("--sleep-evict-kv", "--lora", str(write_lora(tmp_path / "lora.gguf")))
    program = ("-m", "tests.e2e.starved_server", str(orders))
    with Server(tmp_path / "arena", tiny_llama, "tiny", *flags, program=program) as server:
        yield server


def answer(server: Server) -> dict[str, Any]:
    response = server.post("/v1/completions", REQUEST)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]  # type: ignore[no-any-return]


def on_device(server: Server) -> dict[str, int]:
    return {name: size["device"] for name, size in server.state()["models"][0]["bytes"].items()}


def put_to_sleep(server: Server) -> None:
    assert server.post("/lsm/sleep", {}).status_code == 200
    assert server.machine("token") == "asleep"


@pytest.mark.parametrize("point", ["MAP", "FILL"])
def test_a_wake_that_fails_at_any_allocation(server: Server, orders: Path, point: str) -> None:
    """S10, design 3.7: 503 with Retry-After, nothing stays taken, and then the same tokens as ever."""
    undisturbed = answer(server)
    for n in itertools.count():
        put_to_sleep(server)
        away = on_device(server)
        assert away["weights"] == away["kv"] == away["adapters"] == 0
        orders.write_text(f"{point} {n}")
        response = server.post("/v1/completions", REQUEST)
        if response.status_code == 200:
            break
        assert response.status_code == 503, response.text
        assert int(response.headers["retry-after"]) >= 1
        assert on_device(server) == away
        orders.unlink()
        assert answer(server) == undisturbed
    assert n >= list(away.values()).count(0) - 1  # there is no encoder


def test_a_cache_that_cannot_be_saved_stays(server: Server, orders: Path) -> None:
    """S9: without room for its copy the KV cache stays where it is; the weights leave, and everything goes on."""
    undisturbed = answer(server)
    orders.write_text("SAVE 0")
    put_to_sleep(server)
    assert on_device(server)["kv"] > 0 == on_device(server)["weights"]
    assert answer(server) == undisturbed
    orders.unlink()
    put_to_sleep(server)
    assert on_device(server)["kv"] == 0
    assert answer(server) == undisturbed
