"""GET /slots: what each slot is doing.  `?model=` shows one model's; `?fail_on_no_slot=1` is 503 if none is idle.

POST /slots/{id_slot}?action=save|restore|erase: a slot into a file of `--slot-save-path`, out of one, or empty.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import SlotFile, SlotInfo
from lsm.errors import InvalidRequest, NotSupported, Unavailable
from lsm_http.bodies import SlotAction
from lsm_http.context import Context, read
from lsm_http.errors import json_response
from lsm_http.routes.health import require_one_loaded
from lsm_http.routes.props import params_of


def make_routes(context: Context) -> list[Route]:
    async def slots(request: Request) -> Response:
        if not context.settings.slots:
            raise NotSupported("This server does not support slots endpoint. Start it with `--slots`")
        shown = [_slot(alias, slot) | _texts(alias, slot) for alias in _aliases(context, request) for slot in context.host.slots(alias)]
        if request.query_params.get("fail_on_no_slot") and all(slot["is_processing"] for slot in shown):
            raise Unavailable("no slot available")
        return json_response(shown)

    shows_texts = _number(os.environ.get("LLAMA_SERVER_SLOTS_DEBUG", "")) != 0

    def _texts(alias: str, slot: SlotInfo) -> dict[str, str]:
        """What was asked and answered: other people's, so only where the server's owner looks for a mistake."""
        if slot.options is None or not shows_texts:
            return {}
        prompt = [int(token) for token in slot.prompt if token >= 0]
        return {"prompt": context.host.detokenize(alias, prompt), "generated": "".join(slot.written)}

    async def act(request: Request) -> Response:
        if context.settings.keeping.slot_save_path is None:
            raise NotSupported("This server does not support slots action. Start it with `--slot-save-path`")
        slot, action = _slot_id(request), request.query_params.get("action", "")
        if action not in ("save", "restore", "erase"):
            raise InvalidRequest("Invalid action: there are save, restore and erase")
        body = await read(request, SlotAction) if await request.body() else SlotAction()
        model = body.model or request.query_params.get("model", "")
        if action == "erase":
            return json_response({"id_slot": slot, "n_erased": await context.host.erase_slot(model, slot)})
        if body.filename is None:
            raise InvalidRequest("is missing", "filename")
        if action == "save":
            return json_response(_saved(await context.host.save_slot(model, slot, body.filename)))
        return json_response(_restored(await context.host.restore_slot(model, slot, body.filename)))

    return [Route("/slots", slots), Route("/slots/{id_slot}", act, methods=["POST"])]


def _number(text: str) -> int:
    """0 for what is none."""
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() else 0


def _slot_id(request: Request) -> int:
    text = request.path_params["id_slot"]
    if not text.isascii() or not text.removeprefix("-").isdecimal() or len(text) > 9:
        raise InvalidRequest("Invalid slot ID")
    return int(text)


def _saved(file: SlotFile) -> dict[str, Any]:
    timings = {"save_ms": file.elapsed_ms}
    return {"id_slot": file.id_slot, "filename": file.filename, "n_saved": file.n_tokens, "n_written": file.n_bytes, "timings": timings}


def _restored(file: SlotFile) -> dict[str, Any]:
    timings = {"restore_ms": file.elapsed_ms}
    shown = {"id_slot": file.id_slot, "filename": file.filename, "n_restored": file.n_tokens, "n_read": file.n_bytes, "timings": timings}
    return shown | ({"degraded": file.degraded} if file.degraded else {})


def _aliases(context: Context, request: Request) -> list[str]:
    if model := request.query_params.get("model"):
        return [context.loaded(model)[0].alias]
    require_one_loaded(context)
    return [info.alias for info in context.host.models()]


def _slot(alias: str, slot: SlotInfo) -> dict[str, Any]:
    is_processing = slot.state != "idle"
    shown: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": slot.n_ctx,
        "speculative": slot.is_speculative,
        "is_processing": is_processing,
        "model": alias,
    }
    if slot.options is not None:  # one that never ran has nothing more to tell
        n_max = slot.options.max_tokens
        next_token = {
            "has_next_token": is_processing,
            "has_new_line": slot.has_new_line,
            "n_remain": max(0, n_max - slot.n_decoded) if n_max >= 0 else -1,
            "n_decoded": slot.n_decoded,
        }
        shown |= {
            "state": slot.state,
            "id_task": slot.request_id,
            "n_prompt_tokens": slot.n_prompt_tokens,
            "n_prompt_tokens_processed": slot.n_prompt_tokens_processed,
            "n_prompt_tokens_cache": slot.n_prompt_tokens_cache,
            "params": params_of(slot.options),
            "next_token": [next_token],
        }
    return shown
