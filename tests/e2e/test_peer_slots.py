"""S31: slot files of llama-server itself, both ways.  LSM_PEER_LLAMA_SERVER=PATH names one of the pinned source."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Start
from tests.e2e.servers import REQUEST_S, START_S

PEER = os.environ.get("LSM_PEER_LLAMA_SERVER", "")
PROMPT = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"
ASK = {"prompt": PROMPT, "temperature": 0, "n_predict": 6, "id_slot": 1, "cache_prompt": True}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PEER, reason="LSM_PEER_LLAMA_SERVER names no llama-server")]


@contextmanager
def peer(model: Path, folder: Path, *flags: str) -> Iterator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PEER, "-m", str(model), "--port", str(port), "-c", "4096", "-np", "2", "-kvu", "-t", "1", "--slot-save-path", str(folder)]
    process = subprocess.Popen([*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=REQUEST_S) as client:
            _until_healthy(client, process)
            yield client
    finally:
        process.terminate()
        process.wait()


def _until_healthy(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            threading.Event().wait(0.1)
    raise AssertionError("the peer does not serve")


def post(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


def save(client: httpx.Client, name: str) -> dict[str, Any]:
    """Of the slot that has just answered."""
    return post(client, "/slots/1?action=save", {"filename": name})


def go_on(client: httpx.Client, name: str, ask: dict[str, Any] = ASK) -> tuple[dict[str, Any], dict[str, Any]]:
    """What restoring says, and the answer to the same prompt."""
    return post(client, "/slots/1?action=restore", {"filename": name}), post(client, "/completion", ask)


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_each_reads_what_the_other_wrote(
    name: str, tmp_path: Path, start: Start, real_model: Callable[[str], Path]
) -> None:
    """S31 acceptance: a file written by upstream's binary restores here and vice versa: the same continuation, one token decoded."""
    ours = start(name, "--slot-save-path", str(tmp_path), "--cache-ram", "0")
    with peer(real_model(name), tmp_path) as theirs:
        for client, file in ((ours.client, "ours"), (theirs, "theirs")):
            first = post(client, "/completion", ASK)
            assert save(client, file)["n_saved"] == first["timings"]["prompt_n"] + first["timings"]["predicted_n"] - 1
            post(client, "/slots/1?action=erase", {})
        for client, file in ((ours.client, "theirs"), (theirs, "ours")):
            restored, answer = go_on(client, file)
            assert restored["n_read"] == (tmp_path / file).stat().st_size
            assert answer["content"] == first["content"]
            if client is ours.client or name == "smollm2":  # llama-server decodes again what a sliding window remembers
                assert answer["timings"]["prompt_n"] == 1
    assert (tmp_path / "ours").stat().st_size == (tmp_path / "theirs").stat().st_size
    assert _head(tmp_path / "ours") == _head(tmp_path / "theirs")


def _head(path: Path) -> bytes:
    """Header, tokens, and the shape of the state: all that does not depend on how floats are rounded."""
    return path.read_bytes()[: 12 + 20]


def test_a_damaged_file_of_a_peer_is_refused(tmp_path: Path, start: Start, real_model: Callable[[str], Path]) -> None:
    """S31: cut off, or of another model, without a digest: 400, and the slot still has what it had."""
    ours = start("smollm2", "--slot-save-path", str(tmp_path), "--cache-ram", "0")
    for name in ("smollm2", "gemma3"):
        with peer(real_model(name), tmp_path) as theirs:
            post(theirs, "/completion", ASK)
            save(theirs, name)
    whole = (tmp_path / "smollm2").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    post(ours.client, "/completion", ASK)
    for file in ("cut", "gemma3"):
        response = ours.client.post("/slots/1?action=restore", json={"filename": file})
        assert response.status_code == 400 and "Unable to restore slot" in response.json()["error"]["message"]
    assert post(ours.client, "/completion", ASK)["timings"]["prompt_n"] == 1
