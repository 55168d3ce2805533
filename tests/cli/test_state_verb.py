"""`lsm state`: the document of GET /lsm/state for people, and a clear word when there is none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from lsm_cli.main import run
from lsm_cli.state import as_text

STATE = {
    "models": [
        {
            "alias": "smollm2",
            "path": "/m/s.gguf",
            "machines": {"token": {"state": "awake", "since_s": 3.21}, "load": {"state": "ready", "since_s": 60.0}},
            "bytes": {
                "weights": {"device": 98_000_000, "host": 0, "pinned": 0, "file": 98_000_000, "registered": 99_000_000},
                "encoder": {"device": 0, "host": 0, "pinned": 0, "file": 0, "registered": 0},
            },
            "why": "serves",
        }
    ],
    "token": {
        "holder": {"pid": 41, "alias": "smollm2"},
        "held_s": 3.2,
        "queue": [{"pid": 42, "alias": "gemma3", "waited_s": 0.5}],
    },
    "budget_bytes": None,
    "ledger": [],
    "counters": {"handoffs": 7, "wakes": 8, "refusals": 0},
}


class Handler(BaseHTTPRequestHandler):
    """Three servers in one, by the prefix of the path."""

    def do_GET(self) -> None:
        if self.path.startswith("/other"):
            status, body = 200, b"<html>"
        elif self.path.startswith("/missing"):
            status, body = 404, b"{}"
        elif self.headers.get("Authorization") != "Bearer k":
            status, body = 401, b"{}"
        else:
            status, body = 200, json.dumps(STATE).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing to say."""


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_document_for_people(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: holder, queue, one block per model, counters; address and key come from the environment."""
    assert run(["state"], {"LSM_URL": url, "LLAMA_API_KEY": "k"}) == 0
    text = capsys.readouterr().out
    assert "device held by smollm2 (process 41) for 3.2 s" in text
    assert "1. gemma3 (process 42), waiting for 0.5 s" in text
    assert "smollm2: serves" in text
    assert "token     awake for 3.2 s" in text
    weights = next(line for line in text.splitlines() if line.startswith("  weights"))
    assert weights.split() == ["weights", "98.0", "MB", "0.0", "MB", "0.0", "MB", "98.0", "MB", "99.0", "MB"]
    assert "encoder" not in text
    assert "handoffs 7, wakes 8, refusals 0" in text


def test_document_as_it_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: `lsm state --json`."""
    assert run(["state", "--json", "--url", url, "--api-key", "k"], {}) == 0
    assert json.loads(capsys.readouterr().out) == STATE


@pytest.mark.parametrize(
    ("prefix", "sentence"), [("", "--api-key"), ("/missing", "answers 404"), ("/other", "does not answer as an lsm-server")]
)
def test_something_else_answers(url: str, prefix: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: no key, another server, no JSON."""
    assert run(["state", "--url", url + prefix], {}) == 1
    assert sentence in capsys.readouterr().err


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: no server."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert run(["state", "--url", f"http://127.0.0.1:{port}"], {}) == 1
    assert f"no server answers at http://127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize("prefix", ["http://", ""])
@pytest.mark.parametrize("suffix", ["", "/"])
def test_address_without_a_scheme_means_http(prefix: str, suffix: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: 127.0.0.1:8080, as browsers take it."""
    address = prefix + url.removeprefix("http://") + suffix
    assert run(["state", "--json", "--url", address, "--api-key", "k"], {}) == 0
    assert json.loads(capsys.readouterr().out) == STATE


def test_server_that_speaks_no_http(capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: the port of something else."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert run(["state", "--url", f"127.0.0.1:{other.getsockname()[1]}"], {}) == 1
        thread.join()
    assert "does not answer as an lsm-server" in capsys.readouterr().err


def test_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Command line: a mistyped address is a sentence too."""
    for address in ("http://", "http://[", "nonsense://x", "127.0.0.1:port"):
        assert run(["state", "--url", address], {}) == 1
        assert capsys.readouterr().err.startswith("lsm: ")


def test_the_ledger_says_who_has_how_much_and_who_is_asked_for_whom() -> None:
    """Design 4: the budget, and what everybody has of it."""
    pages = [
        {"alias": "smollm2", "pid": 41, "alive": True, "bytes": {"weights": 10**9, "kv": 5 * 10**8}, "asks": [], "missing_bytes": 0},
        {"alias": "gemma3", "pid": 42, "alive": False, "bytes": {}, "asks": ["smollm2"], "missing_bytes": 10**6},
    ]
    text = as_text({**STATE, "budget_bytes": 2 * 10**9, "ledger": pages})
    assert "ledger: 1500.0 MB of a budget of 2000.0 MB" in text
    assert "  smollm2 (process 41): weights 1000.0 MB, kv 500.0 MB" in text
    assert "  gemma3 (process 42), dead: nothing; asks smollm2 to leave, misses 1.0 MB" in text
    assert "ledger" not in as_text(STATE)
