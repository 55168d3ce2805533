"""What only the MCP door has: its schemas, its progress, its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from lsm_embed.async_models import AsyncModels
from lsm_mcp import command, stdio

from lsm.config import Settings
from lsm.errors import InvalidRequest
from tests.transports.limits import LIMIT_S
from tests.transports.scripted_host import ScriptedHost, ScriptedModel, open_scripted_host

FLAGS = ["-m", "echo.gguf", "--alias", "echo"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
PROCESS = pytest.mark.slow  # the SDK takes two seconds to import


@asynccontextmanager
async def client() -> AsyncIterator[Any]:
    """The SDK's client on a server in this process, over the SDK's own wire format."""
    from lsm_mcp.server import build_server
    from mcp import Client

    host = ScriptedHost([ScriptedModel("echo")])
    async with Client(build_server(AsyncModels(host, Settings())), mode="legacy") as client:
        yield client


@PROCESS
async def test_every_tool_describes_itself() -> None:
    """Part 4 of first light: a client's model knows from the list what each tool does and takes."""
    async with client() as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
    assert list(tools) == ["list_models", "chat", "complete", "show_state", "sleep", "wake"]
    for tool in tools.values():
        assert tool.description.endswith(".")
        assert (tool.input_schema["type"], tool.output_schema["type"]) == ("object", "object")
    assert all("description" in field for field in tools["chat"].input_schema["properties"].values())
    assert [name for name, tool in tools.items() if tool.annotations.read_only_hint] == ["list_models", "show_state"]


@PROCESS
@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("chat", {}, "missing required field `messages`"),
        ("chat", {"messages": []}, "length >= 1"),
        ("chat", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ("complete", {"prompt": 5}, "$.prompt"),
        ("complete", {"prompt": "x", "max_token": 5}, "`max_token`"),
        ("complete", {"prompt": "x", "top_p": 3}, "'top_p'"),
        ("sleep", {"model": "other"}, "there are: echo"),
    ],
)
async def test_wrong_arguments_come_back_as_something_to_read(tool: str, arguments: dict[str, Any], message: str) -> None:
    """B.0: the client's model sees which argument is wrong, and can try again."""
    async with client() as mcp:
        result = await mcp.call_tool(tool, arguments)
    assert result.is_error
    assert message in result.content[0].text


@PROCESS
async def test_an_unknown_tool_is_a_protocol_error() -> None:
    """MCP: invalid params, naming the tools that there are."""
    from mcp.shared.exceptions import MCPError

    async with client() as mcp:
        with pytest.raises(MCPError, match="there are: list_models"):
            await mcp.call_tool("chatt")


@PROCESS
async def test_progress_tells_the_text_so_far() -> None:
    """Part 4 of first light: a long answer shows that it grows."""
    told: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async with client() as mcp:
        await mcp.call_tool("chat", HELLO | {"max_tokens": 4}, progress_callback=tell)
    assert told[0] == (1, 4, "H")


@PROCESS
async def test_a_fault_of_ours_stays_in_our_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """B.0: an unforeseen error is no traceback at the client, and the next call is served."""

    def fail(self: ScriptedHost) -> Any:
        raise ZeroDivisionError("secret")

    async with client() as mcp:
        with monkeypatch.context() as patch:
            patch.setattr(ScriptedHost, "state", fail)
            result = await mcp.call_tool("show_state")
        assert result.is_error
        assert "secret" not in str(result)
        assert "ZeroDivisionError" in caplog.text
        assert not (await mcp.call_tool("show_state")).is_error


@contextmanager
def process(*flags: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """lsm-mcp over the scripted host, with pipes; killed at the end if it has not ended."""
    path = os.pathsep.join(filter(None, sys.path))
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.transports.scripted_mcp", *FLAGS, *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def ask(server: subprocess.Popen[str], *requests: dict[str, Any]) -> None:
    assert server.stdin is not None
    for request in requests:
        server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()


def answer(server: subprocess.Popen[str]) -> dict[str, Any]:
    assert server.stdout is not None
    reply: dict[str, Any] = json.loads(server.stdout.readline())
    return reply


@PROCESS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_at_once(number: signal.Signals) -> None:
    """Design 3.6: no thread sits in a read that nothing can wake."""
    with process() as server:
        ask(server, INITIALIZE)
        assert answer(server)["result"]["serverInfo"]["name"] == "lsm"
        server.send_signal(number)
        assert server.wait(LIMIT_S) == 0


@PROCESS
def test_the_server_ends_with_its_client_even_in_the_middle_of_an_answer() -> None:
    """Part 8 of first light: a client that vanishes leaves nothing behind."""
    with process() as server:
        stalled = {"name": "complete", "arguments": {"prompt": "x [stall]"}, "_meta": {"progressToken": 7}}
        ask(server, INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        answer(server)
        ask(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": stalled})
        assert answer(server)["method"] == "notifications/progress"
        assert server.stdin is not None
        server.stdin.close()
        assert server.wait(LIMIT_S) == 0


@PROCESS
def test_bad_lines_do_not_end_the_conversation() -> None:
    """Part 8 of first light: malformed JSON is survived."""
    with process() as server:
        assert server.stdin is not None
        server.stdin.write("this is no JSON\n\n[1,2\n")
        ask(server, INITIALIZE)
        replies = [answer(server)]
        while replies[-1].get("id") != 1:
            replies.append(answer(server))
        assert "result" in replies[-1]


@PROCESS
def test_stdout_carries_nothing_but_the_protocol() -> None:
    """Design 8: whatever prints, prints to stderr."""
    with process("--port", "9", "-v") as server:
        ask(server, INITIALIZE)
        out, errors = server.communicate(timeout=LIMIT_S)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1]
    assert "the host opens\n" in errors
    assert "the host ends\n" in errors
    assert "--port belongs to the HTTP server: no effect here" in errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "no model given"),
        (["--modle", "x"], "did you mean --model?"),
        (["-m", "a.gguf", "--log-file", "/no/such/folder/x.log"], "cannot write /no/such/folder/x.log"),
    ],
)
def test_a_wrong_command_line_is_one_line_on_stderr(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C: exit 1, with the remedy."""
    assert command.main(flags, open_host=open_scripted_host) == 1
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    assert message in errors


def test_messages_name_this_program_and_not_the_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Part 4 of first light: whoever follows a message of lsm-mcp ends in the help of lsm-mcp."""
    assert command.main([*FLAGS, "--xyzzy", "3"], open_host=open_scripted_host) == 1
    assert capsys.readouterr().err == "lsm-mcp: --xyzzy is not known; see lsm-mcp --help\n"
    monkeypatch.setenv("LLAMA_ARG_XYZZY", "3")
    monkeypatch.setattr(command, "_serve", lambda *_: None)
    assert command.main(FLAGS, open_host=open_scripted_host) == 0
    assert "LLAMA_ARG_XYZZY is set, but lsm-mcp has no such setting: ignored" in caplog.text


def test_without_the_sdk_the_command_names_the_remedy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 8: the SDK is an extra."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    for name in [name for name in sys.modules if name.startswith("mcp.") or name == "lsm_mcp.server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(command, "_start_log", lambda settings: None)
    assert command.main(FLAGS, open_host=open_scripted_host) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lsm-mcp: the MCP SDK is not installed: ")
    assert "pip install 'lsm-server[mcp]'" in line and "pip install '.[mcp]'" in line


def test_help_and_version_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """C: both end with 0 and serve nothing."""
    assert command.main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: lsm-mcp")
    assert command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lsm-mcp ")


async def lines_of(*writes: bytes) -> list[str]:
    reader, writer = os.pipe()
    try:
        lines: list[str] = []
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                lines.extend([line async for line in stdio.read_lines(reader)])

            nursery.start_soon(read)
            for data in writes:
                os.write(writer, data)
                await trio.testing.wait_all_tasks_blocked()
            os.close(writer)
        return lines
    finally:
        os.close(reader)


async def test_lines_may_come_in_any_pieces() -> None:
    """MCP: messages are delimited by newlines, not by writes; UTF-8 is decoded a line at a time."""
    text = "é\n\nzwei\nrest".encode()
    assert await lines_of(*(text[i : i + 1] for i in range(len(text)))) == ["é", "", "zwei", "rest"]
    assert await lines_of(text) == ["é", "", "zwei", "rest"]


async def test_an_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Habit 6: a limit on everything."""
    monkeypatch.setattr(stdio, "MAX_LINE_BYTES", 4)
    with pytest.RaisesGroup(pytest.RaisesExc(InvalidRequest, match="more than 4 bytes")):
        await lines_of(b"12345")


async def test_reading_can_be_cancelled() -> None:
    """Design 3.6: every wait is a descriptor."""
    reader, writer = os.pipe()
    with trio.move_on_after(0.01) as scope:
        async for _ in stdio.read_lines(reader):
            pass
    assert scope.cancelled_caught
    os.close(reader)
    os.close(writer)


async def test_a_writer_waits_for_a_reader_that_is_slow() -> None:
    """Part 8 of first light: a full pipe blocks the writing task, and not the loop."""
    reader, writer = os.pipe()
    text = "x" * 300_000
    got = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stdio.Writer(writer).write, text)
        await trio.testing.wait_all_tasks_blocked()
        while len(got) < len(text):
            await trio.lowlevel.wait_readable(reader)
            got += os.read(reader, 65536)
    assert got == text.encode()
    os.close(reader)
    os.close(writer)
