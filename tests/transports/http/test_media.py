"""Images over HTTP, on a real model with a real projector, both tiny."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from lsm_http import serve

from lsm.config import parse_arguments
from tests import tiny_models, tiny_projectors
from tests.media_files import png, wav

LIMIT_S = 60.0


@asynccontextmanager
async def seeing(tmp_path: Path, *arguments: str) -> AsyncIterator[httpx.AsyncClient]:
    model, projector = tiny_models.write_llama(tmp_path / "eyes.gguf"), tiny_projectors.write_llava(tmp_path / "mmproj.gguf")
    given = ["-m", str(model), "--mmproj", str(projector), "--mmproj-ondemand", "--arena", str(tmp_path / "arena"), "--port", "0"]
    settings = parse_arguments([*given, "-c", "256", "-t", "1", "-np", "1", *arguments], {})
    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            url: str = await nursery.start(partial(serve, settings))
            async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
                await client.post("/lsm/wake", json={})
                yield client
            nursery.cancel_scope.cancel()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def look(url: str, **options: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 3, "temperature": 0, "ignore_eos": True, **options}


async def test_an_image_is_answered_and_counted(tmp_path: Path) -> None:
    """S15, B.4: whole and streamed, by OpenAI's form of a part; usage counts its tokens."""
    async with seeing(tmp_path) as client:
        props = (await client.get("/props")).json()
        assert props["modalities"] == {"vision": True, "audio": False, "video": False} and props["media_marker"].startswith("<__media_")
        answer = await client.post("/v1/chat/completions", json=look("data:image/png;base64," + encoded(png())))
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] == 1 + 3 + 16, "BOS, the text, the image"
        streamed = await client.post("/v1/chat/completions", json=look(encoded(png()), stream=True))
        assert streamed.status_code == 200 and streamed.text.endswith("data: [DONE]\n\n")
        state = (await client.get("/lsm/state")).json()
        assert state["models"][0]["bytes"]["encoder"]["device"] == 0


async def test_a_prompt_may_bring_its_media(tmp_path: Path) -> None:
    """B.3: {"prompt_string", "multimodal_data"} with the marker of /props; the same image as in a message is in the cache."""
    async with seeing(tmp_path) as client:
        marker = (await client.get("/props")).json()["media_marker"]
        prompt = {"prompt_string": f"see{marker}", "multimodal_data": [encoded(png())]}
        for route in ("/completion", "/v1/completions"):
            body = {"prompt": prompt, "max_tokens": 3, "n_predict": 3, "temperature": 0}
            answer = await client.post(route, json=body)
            assert answer.status_code == 200, answer.text
        chat = await client.post("/v1/chat/completions", json=look(encoded(png())))
        assert chat.json()["timings"]["cache_n"] > 0


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image_url", "image_url": {"url": "data:text/plain;base64,aGk="}}, "Invalid uri format"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,aGk="}}, "uri must be base64 encoded"),
        ({"type": "image_url", "image_url": {"url": "not base64!"}}, "Invalid base64 value"),
        ({"type": "image_url", "image_url": {"url": encoded(png()[:70])}}, "cannot be decoded"),
        ({"type": "image_url", "image_url": {"url": "file://a.png"}}, "--media-path"),
        ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/"}}, "no public address"),
        ({"type": "input_audio", "input_audio": {"data": encoded(wav())}}, "audio input is not supported"),
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGk="}}, "video input is not supported"),
    ],
)
async def test_what_is_wrong_is_a_400_that_says_so(tmp_path: Path, part: dict[str, Any], message: str) -> None:
    """S15: and the next request is served."""
    async with seeing(tmp_path) as client:
        body = {"messages": [{"role": "user", "content": [part]}], "max_tokens": 1}
        refused = await client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 400 and message in refused.json()["error"]["message"]
        assert (await client.post("/v1/chat/completions", json=look(encoded(png())))).status_code == 200


async def test_multimodal_data_must_be_base64(tmp_path: Path) -> None:
    """B.3: 400 that names the member; markers and media must agree."""
    async with seeing(tmp_path) as client:
        wrong = (("abc", "must be a list"), ([1], "must be a list"), (["!"], "multimodal_data[0]"), ([encoded(png())], "media markers"))
        for data, message in wrong:
            answer = await client.post("/completion", json={"prompt": {"prompt_string": "x", "multimodal_data": data}})
            assert answer.status_code == 400 and message in answer.json()["error"]["message"]
