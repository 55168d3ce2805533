"""Slots into files and back without a server: real ones, and what is refused before it travels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lsm_embed
import numpy as np
import pytest
import trio

import lsm
from lsm.api import MediaPrompt
from lsm.errors import InvalidRequest, NotSupported
from tests import tiny_models, tiny_projectors
from tests.media_files import png
from tests.transports.limits import LIMIT_S, within_limit
from tests.transports.scripted_host import open_scripted_host

GREEDY: dict[str, Any] = {"max_tokens": 4, "temperature": 0, "ignore_eos": True, "id_slot": 1}


def test_a_slot_with_an_image_survives_its_program(tmp_path: Path) -> None:
    """S31: saved by one door, restored by the next, blocking and on trio: the prompt is found, and the answer the same."""
    model, projector = tiny_models.write_llama(tmp_path / "eyes.gguf"), tiny_projectors.write_llava(tmp_path / "mmproj.gguf")
    settings: dict[str, Any] = {"mmproj_paths": [str(projector)], "slot_save_path": tmp_path, "arena": tmp_path / "arena"}
    settings |= {"n_ctx": 256, "n_parallel": 2, "threads": 1}

    def prompt(facts: Any) -> MediaPrompt:
        return MediaPrompt(f"look: {facts.media_marker} what is it?", (png(),))

    def write() -> tuple[list[int], lsm.api.SlotFile]:
        with lsm.open({"eyes": model}, **settings) as models:
            eyes = models["eyes"]
            eyes.wake()
            answer = eyes.complete(prompt(eyes.info.facts), **GREEDY)
            saved = eyes.save_slot(1, "one")
            assert eyes.erase_slot(1) == saved.n_tokens and eyes.erase_slot(1) == 0
            assert eyes.restore_slot(0, "one").n_tokens == saved.n_tokens
            return answer.tokens.tolist(), saved

    async def read() -> tuple[list[int], lsm.api.SlotFile, int]:
        with trio.fail_after(LIMIT_S):
            async with lsm.open_async({"eyes": model}, **settings) as models:
                eyes = models["eyes"]
                restored = await eyes.restore_slot(1, "one")
                answer = await eyes.complete(prompt(eyes.info.facts), **GREEDY)
                assert (await eyes.save_slot(1, "two")).n_tokens == restored.n_tokens == await eyes.erase_slot(1)
                return answer.tokens.tolist(), restored, answer.timings.prompt_n

    expected, saved = within_limit(write)
    tokens, restored, n_again = trio.run(read)
    assert (tokens, restored.n_bytes, restored.n_tokens, n_again) == (expected, saved.n_bytes, saved.n_tokens, 1)


def test_without_a_folder_nothing_is_saved(tmp_path: Path) -> None:
    """S31: the error names the setting."""
    model = tiny_models.write_llama(tmp_path / "tiny.gguf")

    def use() -> None:
        with lsm.open({"tiny": model}, n_ctx=64, threads=1, arena=tmp_path / "arena") as models:
            for act in (lambda: models["tiny"].save_slot(0, "a"), lambda: models["tiny"].erase_slot(0)):
                with pytest.raises(NotSupported, match="slot-save-path"):
                    act()

    within_limit(use)


def test_arguments_that_are_none() -> None:
    """S31: refused by the argument's name, before they travel; numpy's integers are integers."""
    with lsm_embed.open({"echo": "echo.gguf"}, open_host=open_scripted_host) as models:
        echo = models["echo"]
        for slot in ("0", 1.0, True, None):
            for act in (lambda slot: echo.save_slot(slot, "a"), lambda slot: echo.restore_slot(slot, "a"), echo.erase_slot):
                with pytest.raises(InvalidRequest, match="'slot'"):
                    act(slot)
        for name in (b"a", None, "\ud800"):
            for act in (echo.save_slot, echo.restore_slot):
                with pytest.raises(InvalidRequest, match="'filename'"):
                    act(0, name)
        assert echo.erase_slot(np.int64(0)) == 0  # type: ignore[arg-type]
