"""GET /slots: what each slot is doing.  `?model=` shows one model's; `?fail_on_no_slot=1` is 503 if none is idle."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import SlotInfo
from lsm.errors import NotSupported, Unavailable
from lsm_http.context import Context
from lsm_http.errors import json_response
from lsm_http.routes.health import require_one_loaded


def make_routes(context: Context) -> list[Route]:
    async def slots(request: Request) -> Response:
        if not context.settings.slots:
            raise NotSupported("This server does not support slots endpoint. Start it with `--slots`")
        shown = [_slot(alias, slot) for alias in _aliases(context, request) for slot in context.host.slots(alias)]
        if request.query_params.get("fail_on_no_slot") and all(slot["is_processing"] for slot in shown):
            raise Unavailable("no slot available")
        return json_response(shown)

    return [Route("/slots", slots)]


def _aliases(context: Context, request: Request) -> list[str]:
    if model := request.query_params.get("model"):
        return [context.loaded(model)[0].alias]
    require_one_loaded(context)
    return [info.alias for info in context.host.models()]


def _slot(alias: str, slot: SlotInfo) -> dict[str, Any]:
    is_processing = slot.state != "idle"
    shown: dict[str, Any] = {"id": slot.id, "n_ctx": slot.n_ctx, "speculative": False, "is_processing": is_processing, "model": alias}
    if slot.n_prompt_tokens or slot.request_id:  # one that never ran has nothing more to tell
        shown |= {
            "state": slot.state,
            "id_task": slot.request_id,
            "n_prompt_tokens": slot.n_prompt_tokens,
            "n_prompt_tokens_processed": slot.n_prompt_tokens_processed,
            "n_prompt_tokens_cache": slot.n_prompt_tokens_cache,
            "next_token": [{"n_decoded": slot.n_decoded}],
        }
    return shown
