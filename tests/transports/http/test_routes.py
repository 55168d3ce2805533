from __future__ import annotations

import httpx
import pytest

from tests.transports.http.served import Served, served


async def test_health(client: httpx.AsyncClient) -> None:
    """B.1: /health and /v1/health."""
    for path in ("/health", "/v1/health"):
        response = await client.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_every_answer_names_the_dialect(client: httpx.AsyncClient) -> None:
    """B.0: `Server: llama.cpp` header."""
    for path in ("/health", "/nowhere"):
        assert (await client.get(path)).headers["server"] == "llama.cpp"


async def test_models(client: httpx.AsyncClient) -> None:
    """B.1: the members that clients rely on, at both paths."""
    for path in ("/v1/models", "/models"):
        body = (await client.get(path)).json()
        (model,) = body["data"]
        assert (body["object"], model["id"], model["object"], model["owned_by"]) == ("list", "one", "model", "llamacpp")
        assert model["meta"]["n_ctx"] == 512 and model["status"]["value"] == "loaded"
        assert body["models"][0]["capabilities"] == ["completion"]


async def test_one_model_by_its_name() -> None:
    """B.1: what `client.models.retrieve` of the openai package asks for; slashes belong to the name."""
    async with served("-a", "org/one,two", models=("one.gguf", "two.gguf")) as server, server.client() as client:
        listed = {model["id"]: model for model in (await client.get("/v1/models")).json()["data"]}
        assert (await client.get("/v1/models/two")).json() == listed["two"]
        assert (await client.get("/v1/models/org/one")).json() == listed["org/one"]
        missing = await client.get("/v1/models/three")
    assert missing.status_code == 404 and "two" in missing.json()["error"]["message"]


async def test_props(client: httpx.AsyncClient) -> None:
    """B.1: what clients read at start."""
    body = (await client.get("/props")).json()
    assert body["default_generation_settings"]["n_ctx"] == 512
    assert body["default_generation_settings"]["params"]["top_k"] == 40
    assert (body["total_slots"], body["model_alias"], body["bos_token"], body["is_sleeping"]) == (1, "one", "<bos>", False)


async def test_props_cannot_be_changed_without_the_flag(client: httpx.AsyncClient) -> None:
    """B.1: POST /props needs --props, else 501."""
    assert (await client.post("/props", json={})).status_code == 501
    async with served("--props") as server, server.client() as other:
        assert (await other.post("/props", json={})).json() == {"success": True}


async def test_metrics(client: httpx.AsyncClient) -> None:
    """B.1: Prometheus text, and the start time in a header."""
    await client.post("/v1/completions", json={"prompt": "abc"})
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert response.headers["process-start-time-unix"].isdecimal()
    assert "llamacpp:tokens_predicted_total 3" in response.text.splitlines()


async def test_rates_start_anew_with_each_scrape(client: httpx.AsyncClient) -> None:
    """B.1: rate gauges are averages since the previous scrape."""
    await client.post("/v1/completions", json={"prompt": "abc"})
    assert "llamacpp:predicted_tokens_seconds 1000" in (await client.get("/metrics")).text
    assert "llamacpp:predicted_tokens_seconds 0" in (await client.get("/metrics")).text


async def test_what_is_switched_off_says_how_to_switch_it_on() -> None:
    """B.1: /metrics and /slots are 501 without their flag."""
    async with served("--no-slots") as server, server.client() as client:
        for path, flag in (("/metrics", "--metrics"), ("/slots", "--slots")):
            response = await client.get(path)
            assert response.status_code == 501 and flag in response.json()["error"]["message"]


async def test_slots(server: Served, client: httpx.AsyncClient) -> None:
    """B.1: a slot that never ran has only the first members; `fail_on_no_slot`."""
    (slot,) = (await client.get("/slots")).json()
    assert slot == {"id": 0, "n_ctx": 512, "speculative": False, "is_processing": False, "model": "one"}
    async with client.stream("POST", "/v1/completions", json={"prompt": "x[stall]", "stream": True, "max_tokens": 9}):
        (slot,) = (await client.get("/slots")).json()
        assert slot["is_processing"] and slot["n_prompt_tokens"] == 8
        assert slot["next_token"] == [{"has_next_token": True, "has_new_line": False, "n_remain": 9, "n_decoded": 0}]
        assert (slot["params"]["n_predict"], slot["params"]["top_k"]) == (9, 40)
        response = await client.get("/slots?fail_on_no_slot=1")
        assert (response.status_code, response.json()["error"]["message"]) == (503, "no slot available")


async def test_tokenize_and_back(client: httpx.AsyncClient) -> None:
    """B.5: ids, pieces, and bytes where a token is part of a character."""
    assert (await client.post("/tokenize", json={"content": "hé"})).json() == {"tokens": [104, 195, 169]}
    assert (await client.post("/tokenize", json={"content": "h", "add_special": True})).json() == {"tokens": [256, 104]}
    pieces = (await client.post("/tokenize", json={"content": "hé", "with_pieces": True})).json()["tokens"]
    assert pieces == [{"id": 104, "piece": "h"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]
    assert (await client.post("/detokenize", json={"tokens": [104, 195, 169]})).json() == {"content": "hé"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 5}, "content"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [258]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens"),
        ("/v1/completions", {}, "prompt"),
        ("/v1/completions", {"prompt": []}, "prompt"),
        ("/v1/completions", {"prompt": [999]}, "prompt"),
        ("/v1/completions", {"prompt": {"x": 1}}, "prompt"),
        ("/v1/completions", {"prompt": [True]}, "prompt"),
    ],
)
async def test_bad_input_names_the_field(client: httpx.AsyncClient, path: str, body: object, field: str) -> None:
    """B.5, B.3: 400, and the next request is served."""
    response = await client.post(path, json=body)
    assert response.status_code == 400 and f"Field '{field}" in response.json()["error"]["message"]
    assert (await client.post("/v1/completions", json={"prompt": "next"})).status_code == 200


async def test_apply_template(client: httpx.AsyncClient) -> None:
    """B.4: the prompt, and nothing is generated."""
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert (await client.post("/apply-template", json=body)).json() == {"prompt": "<|user|>hi<|assistant|>"}
    assert (await client.post("/apply-template", json={**body, "add_generation_prompt": False})).json() == {"prompt": "<|user|>hi"}


async def test_unknown_path_and_wrong_method(client: httpx.AsyncClient) -> None:
    """B.0: 404 "File Not Found"; a known path says what it has."""
    response = await client.get("/nowhere")
    assert (response.status_code, response.json()["error"]["message"]) == (404, "File Not Found")
    response = await client.get("/v1/completions")
    assert response.status_code == 405 and response.headers["allow"] == "POST"


async def test_unknown_model_names_the_known_ones() -> None:
    """B.0: 404 naming the aliases; an empty name is the first model."""
    async with served(models=("one.gguf", "two.gguf")) as server, server.client() as client:
        response = await client.post("/v1/completions", json={"prompt": "x", "model": "three"})
        assert response.status_code == 404 and "one, two" in response.json()["error"]["message"]
        for name, alias in (("", "one"), (None, "one"), ("two", "two")):
            assert (await client.post("/v1/completions", json={"prompt": "x", "model": name})).json()["model"] == alias


async def test_keys() -> None:
    """B.0: 401 without a key; health, the page and preflights need none."""
    async with served("--api-key", "k1,k2") as server, server.client() as client:
        response = await client.get("/v1/models")
        assert response.json()["error"] == {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}
        assert response.status_code == 401
        assert (await client.get("/v1/models", headers={"Authorization": "Bearer k2"})).status_code == 200
        for path in ("/health", "/"):
            assert (await client.get(path)).status_code == 200
        assert (await client.options("/v1/models")).status_code == 200


async def test_refusals_have_cors_headers_too() -> None:
    """B.0: CORS comes before the key, or a page could not read why it was refused."""
    async with served("--api-key", "k1") as server, server.client() as client:
        response = await client.get("/v1/models", headers={"Origin": "http://a.test"})
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (401, "http://a.test")


async def test_prefix() -> None:
    """B.0: --api-prefix stands in front of every route, and the URL that is reported has it."""
    async with served("--api-prefix", "/llm") as server, server.client() as client:
        assert server.url.endswith("/llm")
        base = f"http://127.0.0.1:{server.port}"
        assert (await client.get(f"{base}/llm/health")).status_code == 200
        for path in ("/health", "/llmhealth", "/llm"):
            assert (await client.get(base + path)).status_code == 404


async def test_page_is_revalidated(client: httpx.AsyncClient) -> None:
    """S30: 200 with an ETag, then 304 with the same Cache-Control; another tag gets the page again."""
    first = await client.get("/")
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    for tag in (first.headers["etag"], f"W/{first.headers['etag']}", f'"x", {first.headers["etag"]}', "*"):
        again = await client.get("/", headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["cache-control"]) == (304, b"", "no-cache")
    assert (await client.get("/", headers={"If-None-Match": '"x"'})).status_code == 200


async def test_page_can_be_switched_off() -> None:
    """B.10: --no-ui -> 404."""
    async with served("--no-ui") as server, server.client() as client:
        assert (await client.get("/")).status_code == 404
