"""Images without a server: the same parts of messages, the same prompts."""

from __future__ import annotations

import base64
from pathlib import Path

import lsm
from lsm.api import MediaPrompt
from tests import tiny_models, tiny_projectors
from tests.media_files import png
from tests.transports.limits import within_limit


def test_an_image_is_seen_in_process(tmp_path: Path) -> None:
    """S15: in a message and in a prompt."""
    model, projector = tiny_models.write_llama(tmp_path / "eyes.gguf"), tiny_projectors.write_llava(tmp_path / "mmproj.gguf")
    part = {"type": "image_url", "image_url": {"url": base64.b64encode(png()).decode()}}

    def look() -> None:
        settings = {"mmproj_paths": [str(projector)], "mmproj_ondemand": True, "n_ctx": 256, "threads": 1, "arena": tmp_path / "arena"}
        with lsm.open({"eyes": model}, **settings) as models:
            eyes = models["eyes"]
            eyes.wake()
            in_message = eyes.chat([{"role": "user", "content": [part]}], max_tokens=2, temperature=0, ignore_eos=True)
            assert eyes.info.facts is not None
            marker = eyes.info.facts.media_marker
            in_prompt = eyes.complete(MediaPrompt(marker, (png(),)), max_tokens=2, temperature=0, ignore_eos=True)
            assert in_message.tokens.tolist() == in_prompt.tokens.tolist() and in_message.prompt_tokens == 1 + 16

    within_limit(look)
