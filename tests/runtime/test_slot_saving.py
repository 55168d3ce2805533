"""Slots of real engines into files and back, below the doors (S31)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from lsm.api import Host
from lsm.errors import InvalidRequest, NotSupported
from lsm.values import ChatRequest, Finish, Options, Sampling
from tests.runtime.test_host import GREEDY, LIMIT_S, PROMPT, host_of, tokens


async def finish_of(host: Host, prompt: list[int], **options: object) -> Finish:
    async with host.generate("a", prompt, Options(sampling=GREEDY, **options)) as answer:  # type: ignore[arg-type]
        return [event async for event in answer if isinstance(event, Finish)][0]


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_gemma3", "tiny_mamba"])
async def test_a_slot_survives_its_server(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """S31: saved while asleep, restored by another host into another slot; the same prompt reuses it, and answers the same."""
    model, folder = request.getfixturevalue(name), tmp_path / "slots"
    folder.mkdir()
    flags = ("--slot-save-path", str(folder), "--sleep-evict-kv", "--cache-ram", "0")
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": model}, *flags) as host:
            expected = await tokens(host, "a", n=12)
            await host.sleep("a")
            saved = await host.save_slot("a", 0, "one")
        async with host_of(tmp_path / "arena", {"a": model}, *flags) as host:
            await host.wake("a")
            restored = await host.restore_slot("a", 1, "one")
            await host.sleep("a")
            again = await finish_of(host, PROMPT, max_tokens=1, id_slot=1)
            assert await tokens(host, "a", n=12) == expected
    assert (saved.n_tokens, saved.n_bytes) == (restored.n_tokens, restored.n_bytes) and saved.n_tokens == len(PROMPT) + 11
    assert again.timings.cache_n >= len(PROMPT) - 4
    assert bool(restored.degraded) == (name == "tiny_mamba")


async def test_erasing_wakes_the_model_and_needs_the_folder(tmp_path: Path, tiny_llama: Path) -> None:
    """S6, S31: erase is among the operations that require KV resident."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}, "--slot-save-path", str(tmp_path)) as host:
            await tokens(host, "a", n=2)
            await host.sleep("a")
            assert await host.erase_slot("a", 0) == len(PROMPT) + 1
            with pytest.raises(InvalidRequest, match="Invalid slot ID"):
                await host.erase_slot("a", 7)
        async with host_of(tmp_path / "arena", {"a": tiny_llama}) as host:
            await host.wake("a")
            with pytest.raises(NotSupported, match="--slot-save-path"):
                await host.erase_slot("a", 0)


async def test_whoever_leaves_while_a_busy_slot_is_waited_for_leaves_nothing(tmp_path: Path, tiny_llama: Path) -> None:
    """I1: the job is cancelled with its caller; the request in the slot goes on."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}, "--slot-save-path", str(tmp_path)) as host:
            await host.wake("a")
            async with host.generate("a", PROMPT, Options(max_tokens=200, sampling=GREEDY)) as answer:
                await anext(answer)
                with trio.move_on_after(0) as patience:
                    await host.save_slot("a", 0, "one")
                assert patience.cancelled_caught
            assert not list(tmp_path.glob("one*"))
            assert (await host.save_slot("a", 0, "one")).n_tokens > 0


async def test_a_chat_takes_a_snapshot_where_its_last_question_begins(tmp_path: Path, tiny_mamba: Path) -> None:
    """S11: message boundaries come from the chat template, passed with the job."""
    turns = (("user", "hello world " * 20), ("assistant", "on it"), ("user", "in that " * 20))
    chat = ChatRequest(messages=tuple({"role": role, "content": content} for role, content in turns))
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_mamba}, "--ctx-checkpoints", "8", "-c", "2048") as host:
            await host.wake("a")
            async with host.chat("a", chat, Options(max_tokens=1, sampling=Sampling(temperature=0.0))) as answer:
                first = [event async for event in answer if isinstance(event, Finish)][0]
            other = ChatRequest(messages=(*chat.messages[:2], {"role": "user", "content": "a " * 20}))
            async with host.chat("a", other, Options(max_tokens=1, sampling=Sampling(temperature=0.0))) as answer:
                second = [event async for event in answer if isinstance(event, Finish)][0]
            rendered = host.render("a", chat)
            n_before = len(host.tokenize("a", rendered[: rendered.rindex("<|im_start|>user")], add_special=True))
    assert first.timings.cache_n == 0
    assert second.timings.cache_n == n_before
