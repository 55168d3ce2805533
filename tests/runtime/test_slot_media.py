"""Slots that hold images and sound, into files and back, through real projectors (S31)."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from lsm.api import Finish, Host, MediaPrompt, Options, Sampling, Settings, open_host
from lsm.config.media import MediaSettings
from lsm.errors import InvalidRequest
from lsm.keeping import Keeping
from tests import tiny_projectors
from tests.media_files import png, wav
from tests.tiny_projectors import PAIRS, write_pair

LIMIT_S = 60.0
GREEDY = Sampling(temperature=0, ignore_eos=True)
OTHER = "other"  # another projector of llava's kind and shape


@asynccontextmanager
async def seeing(folder: Path, name: str, projector: str | None = None) -> AsyncIterator[Host]:
    """`name`: of the pair; `projector`: of another one, or none where it is empty."""
    model, mmproj = write_pair(folder, name)
    if projector == OTHER:
        mmproj = tiny_projectors.write_llava(folder / f"{OTHER}-mmproj.gguf", seed=99)
    elif projector:
        mmproj = write_pair(folder, projector)[1]
    (folder / "slots").mkdir(exist_ok=True)
    settings = Settings(
        model_paths=(model,),
        n_ctx=512,
        n_parallel=2,
        threads=1,
        arena=folder / "arena",
        media=MediaSettings(mmproj_paths=() if projector == "" else (mmproj,), mmproj_ondemand=projector != ""),
        keeping=Keeping(slot_save_path=folder / "slots", cache_ram_mib=0),
    )
    with trio.fail_after(LIMIT_S):
        async with open_host(settings) as host:
            await host.wake("")
            yield host


def prompt_of(host: Host, name: str, *, end: str = " what is it?") -> MediaPrompt:
    facts = host.model("").facts
    assert facts is not None
    files = tuple(wav(hertz=100.0 * seed) if name == "ultravox" else png(seed=seed) for seed in (1, 2))
    return MediaPrompt(f"look: {facts.media_marker}{facts.media_marker}{end}", files)


async def ask(host: Host, prompt: MediaPrompt, slot: int, n: int = 6) -> tuple[tuple[int, ...], Finish]:
    async with host.generate("", prompt, Options(max_tokens=n, id_slot=slot, sampling=GREEDY)) as answer:
        events = [event async for event in answer]
    finish = events.pop()
    assert isinstance(finish, Finish)
    return tuple(token for event in events for token in event.tokens), finish  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("has_digest", [True, False])
@pytest.mark.parametrize("name", list(PAIRS))
async def test_a_slot_with_media_survives_its_server(name: str, has_digest: bool, tmp_path: Path) -> None:
    """S31: in another slot of another server the same prompt decodes one token; a file without a digest, as llama-server's, likewise.

    A window that has moved on goes back to a snapshot, which only the file with the digest has.
    """
    async with seeing(tmp_path, name) as host:
        expected, _ = await ask(host, prompt_of(host, name), 0)
        saved = await host.save_slot("", 0, "one")
        last = await ask(host, prompt_of(host, name, end=""), 1, n=1)
        ends_in_media = await host.save_slot("", 1, "two")
    if not has_digest:
        for file in ("one", "two"):
            (tmp_path / "slots" / f"{file}.lsm").unlink()
    async with seeing(tmp_path, name) as host:
        restored = await host.restore_slot("", 1, "one")
        again, finish = await ask(host, prompt_of(host, name), 1)
        assert (restored.n_tokens, restored.n_bytes) == (saved.n_tokens, saved.n_bytes)
        n_again = 1 if name != "gemma3" else 4 if has_digest else finish.prompt_tokens
        assert (again, finish.timings.prompt_n) == (expected, n_again)
        assert (await host.restore_slot("", 0, "two")).n_tokens == ends_in_media.n_tokens
        assert (await ask(host, prompt_of(host, name, end=""), 0, n=1))[0] == last[0]


async def test_media_need_the_projector_that_encoded_them(tmp_path: Path) -> None:
    """S31: 400 without one, with another one, and with one for another sense, digest or not; the slot keeps what it had."""
    async with seeing(tmp_path, "llava") as host:
        await ask(host, prompt_of(host, "llava"), 0)
        await host.save_slot("", 0, "one")
    for projector, with_digest, without_digest in (
        ("", "Cannot restore media tokens without an mmproj", "Cannot restore media tokens without an mmproj"),
        (OTHER, "encoded by another projector", None),
        ("ultravox", "encoded by another projector", "it holds an image, which the projector has no encoder for"),
    ):
        async with seeing(tmp_path, "llava", projector) as host:
            async with host.generate("", [5, 6, 7], Options(max_tokens=1, id_slot=1, sampling=GREEDY)) as answer:
                assert [event async for event in answer]
            for has_digest, message in ((True, with_digest), (False, without_digest)):
                notes = tmp_path / "slots" / "one.lsm"
                if not has_digest:
                    notes.rename(tmp_path / "aside")
                if message is not None:
                    with pytest.raises(InvalidRequest, match=message):
                        await host.restore_slot("", 1, "one")
                    assert (await host.save_slot("", 1, "kept")).n_tokens == 3
                if not has_digest:
                    (tmp_path / "aside").rename(notes)


async def test_damaged_media_are_refused_before_anything_changes(tmp_path: Path) -> None:
    """S31: 400, with a digest and without; the slot and the server go on."""
    async with seeing(tmp_path, "llava") as host:
        expected, _ = await ask(host, prompt_of(host, "llava"), 0)
        await host.save_slot("", 0, "one")
        whole = (tmp_path / "slots" / "one").read_bytes()
        [n_words] = struct.unpack_from("<I", whole, 8)
        [n_tokens] = struct.unpack_from("<I", whole, 20)
        first_media, end = 24 + 4 * n_tokens, 12 + 4 * n_words
        for has_digest in (True, False):
            if not has_digest:
                (tmp_path / "slots" / "one.lsm").unlink()
            for at in range(first_media, end - 4, 7):
                (tmp_path / "slots" / "one").write_bytes(whole[:at] + bytes(byte ^ 0x5A for byte in whole[at : at + 4]) + whole[at + 4 :])
                try:
                    await host.restore_slot("", 1, "one")
                except InvalidRequest as error:
                    assert "Unable to restore slot" in error.message
                else:
                    assert not has_digest, "what a digest covers is never taken for another"
        assert (await ask(host, prompt_of(host, "llava"), 0))[0] == expected
