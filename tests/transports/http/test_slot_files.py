"""B.1: POST /slots/{id_slot}?action=save|restore|erase."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from lsm.values import Options
from tests.transports.http.served import served


@pytest.fixture
async def saving(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with served("--slot-save-path", str(tmp_path), models=("one.gguf", "two.gguf")) as server, server.client() as client:
        server.host.scripted("two").cached = [5, 6, 7]
        yield client


async def test_a_slot_is_saved_restored_and_erased(saving: httpx.AsyncClient) -> None:
    """S31: the members that clients rely on; the model by query or body, as everywhere."""
    saved = await saving.post("/slots/0?action=save&model=two", json={"filename": "a.bin"})
    assert saved.json() == {"id_slot": 0, "filename": "a.bin", "n_saved": 3, "n_written": 12, "timings": {"save_ms": 1.5}}
    restored = await saving.post("/slots/0?action=restore", json={"filename": "a.bin", "model": "two"})
    assert restored.json() == {
        "id_slot": 0, "filename": "a.bin", "n_restored": 3, "n_read": 12, "timings": {"restore_ms": 2.5}, "degraded": "so it is",
    }  # fmt: skip
    assert (await saving.post("/slots/0?action=erase&model=two")).json() == {"id_slot": 0, "n_erased": 3}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/slots/x?action=save", {"filename": "a"}, "Invalid slot ID"),
        ("/slots/9999999999?action=erase", None, "Invalid slot ID"),
        ("/slots/0", {"filename": "a"}, "Invalid action"),
        ("/slots/0?action=copy", {"filename": "a"}, "Invalid action"),
        ("/slots/0?action=save", None, "Field 'filename'"),
        ("/slots/0?action=restore", {"filename": 5}, "Field 'filename'"),
        ("/slots/0?action=restore", {"filename": "absent"}, "Unable to restore slot"),
    ],
)
async def test_what_is_wrong_is_named(saving: httpx.AsyncClient, path: str, body: object, message: str) -> None:
    """S31: 400."""
    response = await saving.post(path, json=body) if body is not None else await saving.post(path)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert message in response.json()["error"]["message"]


async def test_without_a_folder_it_is_not_supported(client: httpx.AsyncClient) -> None:
    """S31: 501, with the flag to set."""
    response = await client.post("/slots/0?action=erase")
    assert (response.status_code, response.json()["error"]["type"]) == (501, "not_supported_error")
    assert "--slot-save-path" in response.json()["error"]["message"]


@pytest.mark.parametrize("value", ["1", "0", "", "yes"])
async def test_texts_are_shown_only_on_demand(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B.1: `prompt` and `generated` only with LLAMA_SERVER_SLOTS_DEBUG; media are left out of the prompt."""
    monkeypatch.setenv("LLAMA_SERVER_SLOTS_DEBUG", value)
    async with served(models=("one.gguf",)) as server, server.client() as client:
        it = server.host.scripted("one")
        it.cached, it.options = [104, -7, 105], Options()
        [slot] = (await client.get("/slots")).json()
    texts = {name: slot.get(name) for name in ("prompt", "generated")}
    assert texts == ({"prompt": "hi", "generated": "so be it"} if value == "1" else dict.fromkeys(texts))
