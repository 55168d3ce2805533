"""GET /v1/models: what there is, in OpenAI's form and in Ollama's.  GET /v1/models/ALIAS: one of them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import ModelFacts, ModelInfo
from lsm_http.context import Context
from lsm_http.errors import json_response


def make_routes(context: Context) -> list[Route]:
    async def models(request: Request) -> Response:
        infos = context.host.models()
        return json_response({"object": "list", "data": [_openai(info) for info in infos], "models": [_ollama(info) for info in infos]})

    async def model(request: Request) -> Response:
        return json_response(_openai(context.host.model(request.path_params["alias"])))

    return [
        *(Route(path, models) for path in ("/v1/models", "/models")),
        Route("/v1/models/{alias:path}", model),  # an alias may have slashes
    ]


def _openai(info: ModelInfo) -> dict[str, Any]:
    return {
        "id": info.alias,
        "aliases": [info.alias],
        "tags": [],
        "object": "model",
        "created": info.created_s,
        "owned_by": "llamacpp",
        "status": {"value": status(info), "failed": info.load_state == "failed"},
        "meta": None if info.facts is None else _meta(info.facts),
    }


def status(info: ModelInfo) -> str:
    """In the words of llama-server's router."""
    match info.load_state:
        case "ready":
            return "sleeping" if info.sleep_state == "asleep" else "loaded"
        case "queued" | "loading":
            return "loading"
        case _:
            return "unloaded"


def _meta(facts: ModelFacts) -> dict[str, Any]:
    return {
        "vocab_type": facts.vocab_type,
        "n_vocab": facts.n_vocab,
        "n_ctx": facts.n_ctx_slot,
        "n_ctx_train": facts.n_ctx_train,
        "n_embd": facts.n_embd,
        "n_params": facts.n_params,
        "size": facts.size_bytes,
        "ftype": facts.description,
    }


def _ollama(info: ModelInfo) -> dict[str, Any]:
    family = "" if info.facts is None else info.facts.architecture
    details = {"parent_model": "", "format": "gguf", "family": family, "families": [family], "parameter_size": "", "quantization_level": ""}
    return {
        "name": info.alias,
        "model": info.alias,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "" if info.facts is None else info.facts.description,
        "tags": [""],
        "capabilities": ["completion" if info.facts is None or info.facts.generates else "embedding"],
        "parameters": "",
        "details": details,
    }
