"""The tools as an MCP server on stdio.  Needs the `mcp` distribution; nothing else here imports it."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, cast

import msgspec
from anyio import AsyncFile
from lsm_embed import AsyncModels, serve
from lsm_embed.async_models import OpenHost
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool

from lsm import api
from lsm.api import Settings
from lsm.errors import InvalidRequest, LsmError, Unavailable
from lsm_mcp.arguments import Written, schema_of
from lsm_mcp.release import version
from lsm_mcp.stdio import Writer, read_lines, taken_stdout
from lsm_mcp.tools import TOOLS, Report, Tool

INSTRUCTIONS = (
    "Language models on this machine. They share one device: a model that another needs room for sleeps, keeps everything, and is woken"
    " by the next request. list_models names them; chat and complete use them."
)
Context = ServerRequestContext[dict[str, Any]]

log = logging.getLogger(__name__)
by_name = {tool.name: tool for tool in TOOLS}


async def serve_stdio(settings: Settings, *, open_host: OpenHost = api.open_host) -> None:
    """Serve the tools until stdin ends or the caller cancels.  Then requests end and the device is given back."""
    with taken_stdout() as wire:
        async with serve(settings, open_host) as models:
            server = build_server(models)
            # The SDK iterates over the one, and calls write and flush of the other.
            lines, writer = cast(AsyncFile[str], read_lines(0)), cast(AsyncFile[str], Writer(wire))
            async with stdio_server(lines, writer) as (received, to_send):
                await server.run(received, to_send, server.create_initialization_options())


def build_server(models: AsyncModels) -> Server[dict[str, Any]]:
    return Server(
        "lsm",
        version=version(),
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=partial(_call_tool, models),
    )


async def _list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[_listed(tool) for tool in TOOLS])


async def _call_tool(models: AsyncModels, context: Context, params: CallToolRequestParams) -> CallToolResult:
    """An error of the tool is a result that the client's model can read and act on; only an unknown tool breaks the protocol."""
    if params.name not in by_name:
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r}; there are: {', '.join(by_name)}")
    tool = by_name[params.name]
    try:
        arguments = msgspec.convert(params.arguments or {}, tool.takes)
        return _result(await tool.run(models, arguments, _reporter(context)))
    except msgspec.ValidationError as error:
        return _refusal(InvalidRequest(f"arguments of {tool.name}: {error}"))
    except LsmError as error:
        return _refusal(error)
    except Exception:
        log.exception("tool %s", tool.name)
        return _refusal(LsmError("something went wrong inside the server; its log says what"))


def _reporter(context: Context) -> Report:
    async def report(n_tokens: int, at_most: int | None, text: str) -> None:
        await context.session.report_progress(n_tokens, at_most, text)

    return report


def _result(given: msgspec.Struct | dict[str, Any]) -> CallToolResult:
    structured = msgspec.to_builtins(given)
    text = given.text if isinstance(given, Written) else msgspec.json.encode(structured).decode()
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)


def _refusal(error: LsmError) -> CallToolResult:
    details = {"type": error.type, "message": error.message}
    if isinstance(error, Unavailable):
        details["retry_after_s"] = str(error.retry_after_s)
    return CallToolResult(
        content=[TextContent(type="text", text=error.message)], structured_content={"error": details}, is_error=True
    )


def _listed(tool: Tool) -> ListedTool:
    return ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.takes),
        output_schema=schema_of(tool.gives),
        annotations=ToolAnnotations(
            title=tool.title, read_only_hint=tool.reads_only, destructive_hint=False, open_world_hint=False
        ),
    )
