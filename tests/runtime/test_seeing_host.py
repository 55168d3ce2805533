"""Images through the whole host: from messages to answers, asleep and awake, in a line with another model."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from lsm.api import ChatRequest, Finish, Host, MediaPrompt, Options, Sampling, Settings, open_host
from lsm.config.media import MediaSettings
from lsm.errors import InvalidRequest, ModelFileError, Unavailable
from lsm.native.library import lib
from tests import tiny_models, tiny_projectors
from tests.media_files import png

LIMIT_S = 60.0
GREEDY = Options(max_tokens=4, sampling=Sampling(temperature=0, ignore_eos=True))


@asynccontextmanager
async def seeing(tmp_path: Path, **settings: object) -> AsyncIterator[Host]:
    model = tiny_models.write_llama(tmp_path / "eyes.gguf")
    projector = tiny_projectors.write_llava(tmp_path / "mmproj.gguf")
    media = MediaSettings(mmproj_paths=(projector,), mmproj_ondemand=True, media_path=tmp_path)
    given = {"model_paths": (model,), "n_ctx": 256, "n_parallel": 2, "threads": 1, "arena": tmp_path / "arena", "media": media}
    with trio.fail_after(LIMIT_S):
        async with open_host(Settings(**(given | settings))) as host:  # type: ignore[arg-type]
            await host.wake("")
            yield host


def look(url: str, text: str = "what is this?") -> ChatRequest:
    content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    return ChatRequest(messages=({"role": "user", "content": content},))


def data_url(seed: int = 1) -> str:
    return "data:image/png;base64," + base64.b64encode(png(seed=seed)).decode()


async def ask(host: Host, chat: ChatRequest, options: Options = GREEDY) -> tuple[tuple[int, ...], Finish]:
    async with host.chat("", chat, options) as answer:
        events = [event async for event in answer]
    finish = events.pop()
    assert isinstance(finish, Finish)
    return tuple(token for event in events for token in event.tokens), finish  # type: ignore[union-attr]


def bytes_of(host: Host) -> dict[str, int]:
    [model] = host.state()["models"]
    return {name: size["device"] for name, size in model["bytes"].items()}


async def test_an_image_in_a_message_is_seen(tmp_path: Path) -> None:
    """S15: by data URL, raw base64 and file; the same image, the same answer, from the cache the second time."""
    (tmp_path / "cat.png").write_bytes(png())
    async with seeing(tmp_path) as host:
        first, finish = await ask(host, look(data_url()))
        assert finish.prompt_tokens > 16 and finish.timings.cache_n == 0
        for url in (data_url(), base64.b64encode(png()).decode(), "file://cat.png"):
            again, finish = await ask(host, look(url))
            assert again == first and finish.timings.cache_n > 0
        facts = host.model("").facts
        assert facts is not None and facts.has_vision and not facts.has_audio and facts.media_marker in host.render("", look(data_url()))


async def test_a_prompt_with_markers_is_seen_too(tmp_path: Path) -> None:
    """B.3: multimodal prompts name the marker that /props shows."""
    async with seeing(tmp_path) as host:
        facts = host.model("").facts
        assert facts is not None
        async with host.generate("", MediaPrompt(f"look: {facts.media_marker}", (png(),)), GREEDY) as answer:
            assert [event async for event in answer]
        with pytest.raises(InvalidRequest, match="media markers"):
            async with host.generate("", MediaPrompt("no marker", (png(),)), GREEDY):
                pass


async def test_the_encoder_is_away_between_images_and_after_a_wake(tmp_path: Path) -> None:
    """S5: cold releases everything, becoming warm does not bring it in."""
    async with seeing(tmp_path) as host:
        expected, _ = await ask(host, look(data_url()))
        assert bytes_of(host)["encoder"] == 0 < bytes_of(host)["weights"]
        await host.sleep("")
        assert bytes_of(host)["encoder"] == bytes_of(host)["weights"] == 0
        await host.wake("")
        assert bytes_of(host)["encoder"] == 0 < bytes_of(host)["weights"]
        assert (await ask(host, look(data_url(), "again")))[0] and (await ask(host, look(data_url())))[0] == expected


async def test_an_encoder_that_stays_leaves_and_returns_with_the_rest(tmp_path: Path) -> None:
    """S5: without --mmproj-ondemand."""
    media = MediaSettings(mmproj_paths=(tmp_path / "mmproj.gguf",))
    async with seeing(tmp_path, media=media) as host:
        await host.sleep("")
        assert bytes_of(host)["encoder"] == 0
        await host.wake("")
        assert bytes_of(host)["encoder"] > 0
        assert (await ask(host, look(data_url())))[0]


async def test_weights_that_do_not_come_back_cost_a_turn_not_the_request(tmp_path: Path) -> None:
    """S5: the model leaves the device, comes back by the line, and the request goes on where it was; nothing crashes."""
    async with seeing(tmp_path) as host:
        alone_bytes = sum(bytes_of(host).values())
    async with seeing(tmp_path, vram_budget=alone_bytes + 100_000) as host:  # no room beside the weights
        expected, _ = await ask(host, look(data_url()))
        encoder_buffers = 2
        lib.lsm_device_fail_at(lib.LSM_FAULT_MAP, encoder_buffers)
        other, _ = await ask(host, look(data_url(seed=2)))
        assert len(other) == len(expected)
        assert (await ask(host, look(data_url())))[0] == expected
        assert host.state()["counters"]["wakes"] >= 2


@pytest.mark.parametrize("budget", [None, "tight"])
@pytest.mark.parametrize("change", ["removed", "cut", "replaced"])
async def test_a_projector_that_changes_fails_its_model_until_it_is_loaded_again(
    change: str, budget: str | None, tmp_path: Path
) -> None:
    """S5: 503 with the file's name, not an encoder that fails for ever; then the model is loaded with what the file is now."""
    projector = tmp_path / "mmproj.gguf"
    async with seeing(tmp_path) as host:
        alone_bytes = sum(bytes_of(host).values())
    async with seeing(tmp_path, vram_budget=alone_bytes + 100_000 if budget else None) as host:
        expected, _ = await ask(host, look(data_url()))
        contents = projector.read_bytes()
        if change == "cut":
            os.truncate(projector, 5000)
        else:
            projector.unlink()
        if change == "replaced":
            projector.write_bytes(contents)
        with pytest.raises(Unavailable, match=r"mmproj\.gguf") as failed:
            await ask(host, look(data_url(seed=2)))
        assert failed.value.retry_after_s > 0
        with pytest.raises(Unavailable, match=r"mmproj\.gguf"):
            await ask(host, look(data_url()))
        while any(bytes_of(host).values()):
            await trio.lowlevel.checkpoint()
        projector.write_bytes(contents)
        await host.wake("")
        assert (await ask(host, look(data_url())))[0] == expected


async def test_what_is_wrong_with_an_image_is_said(tmp_path: Path) -> None:
    """S15: 400 for the client's mistakes; the next request is served."""
    async with seeing(tmp_path) as host:
        for url, kind, message in (
            ("data:text/plain;base64,aGk=", InvalidRequest, "Invalid uri format"),
            ("aGk=", InvalidRequest, "unknown format"),
            (base64.b64encode(png()[:50]).decode(), InvalidRequest, "cannot be decoded"),
            ("file://none.png", InvalidRequest, "there is no file"),
            ("http://127.0.0.1:1/", InvalidRequest, "no public address"),
            ("http://[::1]:1/x", InvalidRequest, "no public address"),
        ):
            with pytest.raises(kind, match=message):
                await ask(host, look(url))
        assert (await ask(host, look(data_url())))[0]


async def test_a_projector_that_is_none_stops_the_start(tmp_path: Path) -> None:
    """S5: before a server is there."""
    (tmp_path / "bad.gguf").write_bytes(b"no gguf")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        async with seeing(tmp_path, media=MediaSettings(mmproj_paths=(tmp_path / "bad.gguf",))):
            pass
