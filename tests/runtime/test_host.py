"""The host with real engines on tiny models: everything below the doors, in one process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from lsm.api import Host, open_host
from lsm.arena.line import Line
from lsm.config import Settings, parse_arguments
from lsm.errors import ArenaError, ContextExceeded, InvalidRequest, ModelFileError, NotFound, Unavailable
from lsm.machines import MACHINES
from lsm.values import Finish, Options, Sampling
from lsm.verify import read_traces, verify

GREEDY = Sampling(temperature=0.0, ignore_eos=True)
PROMPT = list(range(10, 40))
LIMIT_S = 60


def settings(arena: Path, models: dict[str, Path], *flags: str) -> Settings:
    words = [word for path in models.values() for word in ("-m", str(path))]
    return parse_arguments(
        [*words, "-a", ",".join(models), "--arena", str(arena), "-t", "1", "-c", "512", "-np", "2", "-b", "64", "-ub", "64", *flags], {}
    )


def host_of(arena: Path, models: dict[str, Path], *flags: str) -> AbstractAsyncContextManager[Host]:
    return open_host(settings(arena, models, *flags))


async def tokens(host: Host, model: str, prompt: Sequence[int] | str = PROMPT, n: int = 12) -> list[int]:
    await host.wake(model)
    async with host.generate(model, prompt, Options(max_tokens=n, sampling=GREEDY)) as answer:
        return [token async for event in answer if not isinstance(event, Finish) for token in event.tokens]


async def test_two_models_of_one_process_take_turns(tmp_path: Path, tiny_llama: Path, tiny_gemma3: Path) -> None:
    """Design 3.1 inside one process: the same line, the same exclusion; answers as if nothing had happened."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama, "b": tiny_gemma3}) as host:
            first = {name: await tokens(host, name) for name in "ab"}
            for _ in range(3):
                for name in "ab":
                    assert await tokens(host, name) == first[name]
                    resident = [model["alias"] for model in host.state()["models"] if model["bytes"]["weights"]["device"]]
                    assert resident == [name]


async def test_two_models_of_one_process_stay_side_by_side_under_a_budget(tmp_path: Path, tiny_llama: Path, tiny_gemma3: Path) -> None:
    """Design 4: in one process or in two; what the ledger says is what the device has, and nothing moves after the loads."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama, "b": tiny_gemma3}, "--vram-budget", "1GiB") as host:
            first = {name: await tokens(host, name) for name in "ab"}
            loaded = host.state()["counters"]
            for _ in range(15):
                for name in "ab":
                    assert await tokens(host, name) == first[name]
            state = host.state()
            assert state["counters"] == loaded and state["token"]["holder"] is None
            on_device = {m["alias"]: {name: at["device"] for name, at in m["bytes"].items()} for m in state["models"]}
            assert {page["alias"]: page["bytes"] for page in state["ledger"]} == on_device


async def test_two_hosts_in_one_program_share_the_line(tmp_path: Path, tiny_llama: Path) -> None:
    """Two open sets of models know nothing of each other but the arena."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}) as one, host_of(tmp_path / "arena", {"a": tiny_llama}) as two:
            assert await tokens(one, "a") == await tokens(two, "a") == await tokens(one, "a")


@pytest.mark.parametrize("flags", [(), ("--sleep-evict-kv",)], ids=["kv stays", "kv leaves"])
async def test_sleep_in_the_middle_of_an_answer_changes_no_token(tmp_path: Path, tiny_gemma3: Path, flags: tuple[str, ...]) -> None:
    """S10, S9: released and restored between two batches; greedy output identical to an undisturbed run."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_gemma3}, *flags) as host:
            undisturbed = await tokens(host, "a", n=60)
            async with host.generate("a", PROMPT, Options(max_tokens=60, sampling=GREEDY)) as answer:
                disturbed: list[int] = []
                async for event in answer:
                    if not isinstance(event, Finish):
                        disturbed += event.tokens
                        await host.sleep("a")
            assert disturbed == undisturbed


async def test_leaving_an_answer_frees_its_slot(tmp_path: Path, tiny_llama: Path) -> None:
    """Cancel takes effect at the next batch."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}) as host:
            await host.wake("a")
            for _ in range(5):  # more than there are slots
                async with host.generate("a", PROMPT, Options(max_tokens=-1, sampling=GREEDY)) as answer:
                    await anext(answer)
            assert len(await tokens(host, "a")) == 12


async def test_requests_that_cannot_be_served_are_refused_by_name(tmp_path: Path, tiny_llama: Path) -> None:
    """B.2, B.4: the error names what is wrong; the next request is served."""
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}) as host:
            await host.wake("a")
            with pytest.raises(NotFound, match="'b' not found; this server has: a"):
                host.model("b")
            for prompt, kind in (([10] * 600, ContextExceeded), ([10**6], InvalidRequest), ([], InvalidRequest)):
                with pytest.raises(kind):
                    await tokens(host, "a", prompt)
            assert len(await tokens(host, "a")) == 12


async def test_a_broken_file_is_told_before_anything_starts(tmp_path: Path) -> None:
    """Bad input: a message, not a server."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 8)
    with pytest.raises(ModelFileError, match="broken.gguf"):
        async with host_of(tmp_path / "arena", {"a": broken}):
            pass


async def test_a_broken_template_of_the_command_line_is_told_before_anything_starts(tmp_path: Path, tiny_llama: Path) -> None:
    """C.7 --chat-template: not with the first conversation."""
    with pytest.raises(ModelFileError, match="--chat-template"):
        async with host_of(tmp_path / "arena", {"a": tiny_llama}, "--chat-template", "{% for"):
            pass


async def test_closing_ends_running_answers_with_an_error(tmp_path: Path, tiny_llama: Path) -> None:
    """Design 2: stop is an exit of every wait."""
    with trio.fail_after(LIMIT_S):
        ended = trio.Event()
        async with trio.open_nursery() as nursery:

            async def generate(host: Host) -> None:
                with pytest.raises(Unavailable, match="stopping"):
                    async with host.generate("a", PROMPT, Options(max_tokens=-1, sampling=GREEDY)) as answer:
                        running.set()
                        async for _ in answer:
                            pass
                ended.set()

            running = trio.Event()
            async with host_of(tmp_path / "arena", {"a": tiny_llama}, "-c", "65536") as host:
                await host.wake("a")
                nursery.start_soon(generate, host)
                await running.wait()
            await ended.wait()


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_opening_can_be_cancelled_at_any_moment(tmp_path: Path, tiny_llama: Path, turns: int) -> None:
    """A server that is told to end while it starts ends: nothing waits for owners that nobody will stop."""
    with trio.fail_after(LIMIT_S), trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                for _ in range(turns):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel)
            async with host_of(tmp_path / "arena", {"a": tiny_llama, "b": tiny_llama}) as host:
                await host.wake("b")
                await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_model_that_cannot_start_ends_those_that_have(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second place in the line cannot be had: an error, and the first model is not left running."""
    lines: list[Line] = []

    def line(arena: Path, label: str) -> Line:
        if lines:
            raise ArenaError("no second place")
        lines.append(Line(arena, label))
        return lines[0]

    monkeypatch.setattr("lsm.runtime.host.Line", line)
    with trio.fail_after(LIMIT_S), pytest.RaisesGroup(ArenaError, flatten_subgroups=True, allow_unwrapped=True):
        async with host_of(tmp_path / "arena", {"a": tiny_llama, "b": tiny_llama}):
            pass


async def test_every_recorded_edge_is_one_of_its_table(
    tmp_path: Path, tiny_llama: Path, tiny_mamba: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design 9: LSM_TRACE records a real run, and it passes all checks of a trace."""
    trace = tmp_path / "trace.ndjson"
    monkeypatch.setenv("LSM_TRACE", str(trace))
    with trio.fail_after(LIMIT_S):
        async with host_of(tmp_path / "arena", {"a": tiny_llama, "b": tiny_mamba}) as host:
            for name in "abab":
                await tokens(host, name)
    records = read_traces([trace]).records
    assert [verdict.story for verdict in verify(records)] == [None, None, None]
    assert {record.machine for record in records} == set(MACHINES) - {"encoder"}, "none of these models sees"
    assert sum(record.event == "token_won" for record in records) >= 4  # so often it changed hands, at least
