"""What goes wrong is a clear error, and the next request is served.  One server, with a real model, for the whole file."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from .servers import Server, text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, real_model: Callable[[str], Path]) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("bad") / "arena", real_model("smollm2"), "smollm2") as server:
        yield server


@pytest.fixture
def server(running: Server) -> Iterator[Server]:
    """After each test: it still serves, and no slot is left busy."""
    yield running
    assert text(running.ask("Hello"))
    running.until(lambda: running.state()["models"][0]["requests"] == {"running": 0, "waiting": 0})


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port))


def send_head(to: socket.socket, path: str, length: int) -> None:
    to.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode())


def test_malformed_json_is_400(server: Server) -> None:
    """B.0: 400, not 500."""
    response = server.client.post("/v1/chat/completions", content=b'{"messages": [')
    assert response.status_code == 400 and response.json()["error"]["type"] == "invalid_request_error"


def test_unknown_model_is_404_and_names_those_that_are_there(server: Server) -> None:
    response = server.post("/v1/chat/completions", {"model": "gpt-9", "messages": [{"role": "user", "content": "Hi"}]})
    assert response.status_code == 404
    assert "gpt-9" in response.json()["error"]["message"] and "smollm2" in response.json()["error"]["message"]


def test_prompt_that_is_too_long(server: Server) -> None:
    """B.2: exceed_context_size_error, with both numbers."""
    response = server.post("/v1/completions", {"prompt": "word " * 6000})
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > error["n_ctx"] == 4096


def test_body_of_100_mb(server: Server) -> None:
    response = server.client.post("/v1/completions", content=b'{"prompt": "' + b"x" * 100_000_000 + b'"}')
    assert response.status_code in (400, 413) and "error" in response.json()


def test_client_that_vanishes_before_the_answer(server: Server) -> None:
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True}).encode()
    with connect(server) as client:
        send_head(client, "/v1/completions", len(body))
        client.sendall(body)
        server.until(lambda: server.state()["models"][0]["requests"]["running"] == 1)


def test_client_that_vanishes_in_the_middle_of_a_stream(server: Server) -> None:
    with server.generate_for_long():
        pass


def test_client_that_sends_half_a_body(server: Server) -> None:
    with connect(server) as client:
        send_head(client, "/v1/completions", 1000)
        client.sendall(b'{"prompt": ')


def test_client_that_stops_reading(server: Server) -> None:
    """It holds up nobody: others are served while it does not read."""
    body = json.dumps({"prompt": "Hi", "max_tokens": 500, "ignore_eos": True, "stream": True}).encode()
    with connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send_head(client, "/v1/completions", len(body))
        client.sendall(body)
        assert text(server.ask("Hello"))


def test_tokens_that_do_not_exist(server: Server) -> None:
    assert server.post("/detokenize", {"tokens": [10**9]}).status_code == 400
    assert server.post("/v1/completions", {"prompt": [-1, 10**9]}).status_code == 400


def test_a_file_replaced_under_a_sleeping_model_fails_it_and_a_new_load_mends_it(
    tmp_path: Path, real_model: Callable[[str], Path]
) -> None:
    """Design 4: detected before a byte is read; a clear error; no SIGBUS; it can be loaded again."""
    original = real_model("smollm2").read_bytes()
    file = tmp_path / "model.gguf"
    file.write_bytes(original)
    with Server(tmp_path / "arena", file, "model") as server:
        assert text(server.ask("Hello"))
        assert server.post("/lsm/sleep", {"model": "model"}).status_code == 200
        with file.open("r+b") as broken:
            broken.truncate(1_000_000)
        response = server.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
        assert response.status_code == 503 and "model.gguf" in response.json()["error"]["message"], response.text
        assert server.machine("load") in ("failing", "failed")
        file.write_bytes(original)
        assert server.post("/lsm/wake", {"model": "model"}).status_code == 200
        assert text(server.ask("Hello"))
