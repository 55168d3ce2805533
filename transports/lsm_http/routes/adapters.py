"""/lora-adapters: which LoRA adapters a model has, and how strongly each acts.  `?model=` picks one of several models."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import AdapterInfo
from lsm.errors import InvalidRequest
from lsm_http.bodies import AdapterScale, parse
from lsm_http.context import Context
from lsm_http.errors import json_response


def make_routes(context: Context) -> list[Route]:
    async def adapters(request: Request) -> Response:
        _, facts = context.loaded(request.query_params.get("model"))
        return json_response([_entry(adapter) for adapter in facts.adapters])

    async def scale(request: Request) -> Response:
        info, _ = context.loaded(request.query_params.get("model"))
        context.host.set_adapters(info.alias, _scales(await request.body()))
        return json_response({"success": True})

    return [Route("/lora-adapters", adapters), Route("/lora-adapters", scale, methods=["POST"])]


def _entry(adapter: AdapterInfo) -> dict[str, Any]:
    entry = {
        "id": adapter.id,
        "path": adapter.path,
        "scale": adapter.scale,
        "task_name": adapter.task_name,
        "prompt_prefix": adapter.prompt_prefix,
    }
    if adapter.invocation_tokens:
        entry |= {"alora_invocation_string": adapter.invocation_text, "alora_invocation_tokens": list(adapter.invocation_tokens)}
    return entry


def _scales(body: bytes) -> dict[int, float]:
    if not body.lstrip().startswith(b"["):
        raise InvalidRequest("Request body must be an array")
    return {entry.id: entry.scale for entry in parse(body, list[AdapterScale])}
