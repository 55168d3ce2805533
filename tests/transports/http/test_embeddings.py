"""B.5 at the HTTP door: embeddings and ranking, in each client's form."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.transports.http.served import Served, served


@pytest.fixture
async def embedder() -> AsyncIterator[Served]:
    async with served("--embeddings") as running:
        yield running


async def post(server: Served, path: str, body: dict[str, Any]) -> httpx.Response:
    async with server.client() as client:
        return await client.post(path, json=body)


async def refusal(server: Served, path: str, body: dict[str, Any]) -> tuple[int, str]:
    response = await post(server, path, body)
    return response.status_code, response.json()["error"]["message"]


@pytest.mark.parametrize("encoding", ["float", "base64"])
async def test_the_openai_client_embeds(embedder: Served, encoding: Any) -> None:
    """B.5: both encodings, read by OpenAI's own client; usage counts all inputs."""
    async with openai.AsyncOpenAI(base_url=f"{embedder.url}/v1", api_key="none", max_retries=0) as client:
        made = await client.embeddings.create(model="one", input=["abc", "b"], encoding_format=encoding)
        plain = await client.embeddings.create(model="one", input="abc")  # asks for base64 by itself, and decodes it
    vectors = [one.embedding for one in made.data]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(str(vector)), "<f4").tolist() for vector in vectors]
    assert vectors == [[3, 97, 99], [1, 98, 99]]
    assert [one.index for one in made.data] == [0, 1]
    assert (made.usage.prompt_tokens, made.usage.total_tokens, made.model) == (4, 4, "one")
    assert plain.data[0].embedding == [3, 97, 99]


@pytest.mark.parametrize(
    ("value", "first"),
    [
        ("abc", [[3, 97, 99]]),
        ([97, 98], [[2, 97, 99]]),
        ([[97], "bc"], [[1, 97, 99], [2, 98, 99]]),
        (["a", 98], [[3, 256, 99]]),
        ({"prompt_string": "ab"}, [[2, 97, 99]]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, [[2, 97, 99]]),
        ([{"content": "ab"}, "c"], [[2, 97, 99], [1, 99, 99]]),
    ],
)
async def test_each_form_of_an_input(embedder: Served, value: Any, first: list[list[float]]) -> None:
    """B.2, B.5: a text, ids, both mixed, an object with content, and lists of these."""
    response = await post(embedder, "/v1/embeddings", {"input": value})
    assert [one["embedding"] for one in response.json()["data"]] == first


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
async def test_llama_servers_own_form(embedder: Served, path: str) -> None:
    """B.5: a list of lists; the request says how long a vector is; `content` is another name of `input`."""
    response = await post(embedder, path, {"content": ["abc", "b"], "embd_normalize": -1})
    assert response.json() == [{"index": 0, "embedding": [[3, 97, -1]]}, {"index": 1, "embedding": [[1, 98, -1]]}]
    native = await post(embedder, "/v1/embeddings", {"content": "abc"})
    assert native.json() == [{"index": 0, "embedding": [[3, 97, 99]]}]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Field 'input': must not be empty"),
        ({"input": []}, "Field 'input': must not be empty"),
        ({"input": [""]}, "Field 'input': must not be empty"),
        ({"content": ""}, "Field 'content': must not be empty"),
        ({"input": 7}, "Field 'input': must be a text"),
        ({"input": [1.5]}, "Field 'input': must be a text"),
        ({"input": [True]}, "Field 'input': must be a text"),
        ({"input": [999]}, "token 999 does not exist"),
        ({"input": {"content": [{"type": "sound"}]}}, "content must be a text"),
        ({"input": "a", "encoding_format": "int8"}, "must be float or base64"),
        ({"input": "a", "dimensions": 2}, "have 3 dimensions"),
        ({"input": "a", "embd_normalize": -2}, "Value must be between -1 and 1000"),
    ],
)
async def test_what_is_refused_names_the_field(embedder: Served, body: dict[str, Any], message: str) -> None:
    """B.5: 400, and the server goes on."""
    status, told = await refusal(embedder, "/v1/embeddings", body)
    assert status == 400 and message in told
    assert (await post(embedder, "/v1/embeddings", {"input": "a", "dimensions": 3})).status_code == 200


async def test_media_is_not_embedded(embedder: Served) -> None:
    """B.5: a part that this model cannot read: 501, not a vector of something else."""
    body = {"input": {"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}}
    assert (await refusal(embedder, "/v1/embeddings", body))[0] == 501


async def test_one_vector_for_each_token_is_nothing_for_openai(embedder: Served) -> None:
    """B.5: pooling none: 400 there, a list of vectors in llama-server's form."""
    embedder.host.scripted("one").pooling = "none"
    status, told = await refusal(embedder, "/v1/embeddings", {"input": "a"})
    assert status == 400 and "Pooling type 'none'" in told
    assert (await post(embedder, "/embeddings", {"input": "a"})).status_code == 200


@pytest.mark.parametrize("path", ["/embedding", "/embeddings", "/v1/embeddings", "/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
async def test_without_the_flag_it_is_not_supported(server: Served, path: str) -> None:
    """B.5: 501 that names the flag, whatever the body."""
    status, told = await refusal(server, path, {})
    assert status == 501 and ("--reranking" if "rank" in path else "--embeddings") in told


async def test_a_model_that_only_embeds_says_so(embedder: Served) -> None:
    """B.1: in the capabilities of Ollama's list."""
    async with embedder.client() as client:
        assert (await client.get("/models")).json()["models"][0]["capabilities"] == ["completion"]
        embedder.host.scripted("one").generates = False
        assert (await client.get("/models")).json()["models"][0]["capabilities"] == ["embedding"]


DOCUMENTS = ["a cat", "a cat and a cat", "a dog", "cat cat cat"]


@pytest.mark.parametrize("path", ["/rerank", "/reranking", "/v1/rerank", "/v1/reranking"])
async def test_documents_are_ranked_as_jina_does(path: str) -> None:
    """B.5: best first, with the places that they had; usage counts all."""
    async with served("--rerank") as server:
        response = await post(server, path, {"query": "cat", "documents": DOCUMENTS})
    assert response.json() == {
        "object": "list",
        "model": "one",
        "usage": {"prompt_tokens": 36, "total_tokens": 36},
        "results": [
            {"index": 3, "relevance_score": 3.0},
            {"index": 1, "relevance_score": 2.0},
            {"index": 0, "relevance_score": 1.0},
            {"index": 2, "relevance_score": 0.0},
        ],
    }


@pytest.mark.parametrize("return_text", [True, False])
async def test_texts_are_ranked_as_tei_does(return_text: bool) -> None:
    """B.5: a plain list, with the texts if they are wanted, and no more than top_n."""
    async with served("--rerank") as server:
        response = await post(server, "/rerank", {"query": "cat", "texts": DOCUMENTS, "top_n": 2, "return_text": return_text})
    expected: list[dict[str, Any]] = [{"index": 3, "score": 3.0}, {"index": 1, "score": 2.0}]
    if return_text:
        expected[0]["text"], expected[1]["text"] = "cat cat cat", "a cat and a cat"
    assert response.json() == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"documents": ["a"]}, '"query" must be provided'),
        ({"query": 7, "documents": ["a"]}, "Field 'query'"),
        ({"query": "a"}, '"documents" must be a non-empty string array'),
        ({"query": "a", "documents": []}, '"documents" must be a non-empty string array'),
        ({"query": "a", "documents": [7]}, "documents"),
        ({"query": "a", "documents": ["a"], "top_n": -1}, "Field 'top_n'"),
    ],
)
async def test_a_wrong_ranking_is_refused(body: dict[str, Any], message: str) -> None:
    """B.5: 400, naming what is missing."""
    async with served("--rerank") as server:
        status, told = await refusal(server, "/v1/rerank", body)
    assert status == 400 and message in told
