"""B.1: GET and POST /lora-adapters."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from lsm.values import AdapterInfo
from tests.transports.http.served import Served, served

ADAPTERS = (
    AdapterInfo(id=0, path="a.gguf", scale=1.0, task_name="sums", prompt_prefix="Add:", invocation_tokens=(), invocation_text=""),
    AdapterInfo(id=1, path="b.gguf", scale=0.0, task_name="", prompt_prefix="", invocation_tokens=(104, 105), invocation_text="hi"),
)


@pytest.fixture
async def steered(server: Served) -> Served:
    server.host.scripted("").adapters = ADAPTERS
    return server


async def test_adapters_are_listed(steered: Served, client: httpx.AsyncClient) -> None:
    """B.1: with what brings an aLoRA into action only where there is such a thing."""
    assert (await client.get("/lora-adapters")).json() == [
        {"id": 0, "path": "a.gguf", "scale": 1.0, "task_name": "sums", "prompt_prefix": "Add:"},
        {
            "id": 1, "path": "b.gguf", "scale": 0.0, "task_name": "", "prompt_prefix": "",
            "alora_invocation_string": "hi", "alora_invocation_tokens": [104, 105],
        },
    ]  # fmt: skip


async def test_a_model_without_adapters_lists_none(client: httpx.AsyncClient) -> None:
    """B.1: an empty list, and an empty change is no mistake."""
    assert (await client.get("/lora-adapters")).json() == []
    assert (await client.post("/lora-adapters", json=[])).json() == {"success": True}


async def test_scales_are_set_and_the_others_go_to_0(steered: Served, client: httpx.AsyncClient) -> None:
    """B.1: `scale` is 0 where it is absent."""
    for body, scales in (([{"id": 1, "scale": 0.5}], [0.0, 0.5]), ([{"id": 0, "scale": 2}, {"id": 1}], [2.0, 0.0])):
        response = await client.post("/lora-adapters", json=body)
        assert (response.status_code, response.json()) == (200, {"success": True})
        assert [adapter["scale"] for adapter in (await client.get("/lora-adapters")).json()] == scales


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{}", "Request body must be an array"),
        (b"", "Request body must be an array"),
        (b'[{"id": 7}]', "Field 'id'"),
        (b'[{"scale": 1}]', "id"),
        (b'[{"id": "x"}]', "[0].id"),
        (b"[", "not valid JSON"),
    ],
)
async def test_what_is_wrong_is_named(steered: Served, client: httpx.AsyncClient, body: bytes, message: str) -> None:
    """B.1: 400, and nothing is changed."""
    response = await client.post("/lora-adapters", content=body)
    assert response.status_code == 400 and message in response.json()["error"]["message"]
    assert steered.host.scripted("").adapters == ADAPTERS


async def test_each_model_has_its_own() -> None:
    """B.1: `?model=` says which; the first one without it."""
    async with served(models=("one.gguf", "two.gguf")) as server, server.client() as client:
        server.host.scripted("two").adapters = (replace(ADAPTERS[0]),)
        assert len((await client.get("/lora-adapters?model=two")).json()) == 1
        assert (await client.get("/lora-adapters")).json() == []
        assert (await client.post("/lora-adapters?model=two", json=[])).status_code == 200
        assert server.host.scripted("two").adapters[0].scale == 0.0


async def test_a_model_that_is_not_there_yet() -> None:
    """B.0: 503 while it is loaded."""
    async with served(models=("loading.gguf",)) as server, server.client() as client:
        for response in (await client.get("/lora-adapters"), await client.post("/lora-adapters", json=[])):
            assert response.status_code == 503
