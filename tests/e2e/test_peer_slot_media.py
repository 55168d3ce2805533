"""S31: slot files with images and sound of llama-server itself, both ways.  LSM_PEER_LLAMA_SERVER=PATH names one of the pinned source."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from lsm.api import MediaPrompt
from tests.e2e.test_peer_slots import PEER, go_on, peer, post, save
from tests.runtime.test_slot_media import ask, prompt_of, seeing
from tests.tiny_projectors import PAIRS

N = 6
LIMIT_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PEER, reason="LSM_PEER_LLAMA_SERVER names no llama-server")]


def body_of(client: httpx.Client, prompt: MediaPrompt, marker: str) -> dict[str, Any]:
    """What asks the peer for the same as `ask` does of a host; each server has a marker of its own."""
    text = prompt.text.replace(marker, client.get("/props").json()["media_marker"])
    media = [base64.b64encode(file).decode() for file in prompt.files]
    options = {"temperature": 0, "n_predict": N, "id_slot": 1, "cache_prompt": True, "ignore_eos": True, "return_tokens": True}
    return {"prompt": {"prompt_string": text, "multimodal_data": media}, **options}


def tokens_of(path: Path) -> bytes:
    """The token list of a file, media included."""
    data = path.read_bytes()
    [n_words] = struct.unpack_from("<I", data, 8)
    return data[: 12 + 4 * n_words]


@pytest.mark.parametrize("name", list(PAIRS))
async def test_each_reads_the_media_that_the_other_wrote(name: str, tmp_path: Path) -> None:
    """S31 acceptance: the same bytes of tokens and media; each goes on where the other was, with the same answer."""
    slots, flags = tmp_path / "slots", ("--mmproj", str(tmp_path / f"{name}-mmproj.gguf"), "--no-kv-unified")
    with trio.fail_after(LIMIT_S):
        async with seeing(tmp_path, name) as host:
            facts = host.model("").facts
            assert facts is not None
            prompt = prompt_of(host, name)
            first, _ = await ask(host, prompt, 1, N)
            await host.save_slot("", 1, "ours")
            with peer(tmp_path / f"{name}.gguf", slots, *flags) as theirs:
                body = body_of(theirs, prompt, facts.media_marker)
                assert tuple(post(theirs, "/completion", body)["tokens"]) == first
                save(theirs, "theirs")
                restored, answer = go_on(theirs, "ours", body)
            assert tokens_of(slots / "ours") == tokens_of(slots / "theirs")
            await host.erase_slot("", 1)
            await host.restore_slot("", 1, "theirs")
            again, finish = await ask(host, prompt, 1, N)
    assert restored["n_read"] == (slots / "ours").stat().st_size
    assert tuple(answer["tokens"]) == again == first
    if name != "gemma3":  # whose window has moved on, and only a snapshot would bring it back
        assert answer["timings"]["prompt_n"] == finish.timings.prompt_n == 1
