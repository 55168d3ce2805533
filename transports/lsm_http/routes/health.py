"""GET /health: can this server answer a request now, or after its turn?"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.errors import ModelFailed, ModelLoading
from lsm_http.context import Context
from lsm_http.errors import json_response


def make_routes(context: Context) -> list[Route]:
    async def health(request: Request) -> Response:
        require_one_loaded(context)
        return json_response({"status": "ok"})

    return [Route(path, health) for path in ("/health", "/v1/health")]


def require_one_loaded(context: Context) -> None:
    """Asleep, or waiting for the device, is healthy: a request wakes the model.  Raises `ModelLoading` or, if all failed, `ModelFailed`."""
    models = context.host.models()
    if any(model.load_state == "ready" for model in models):
        return
    if all(model.load_state == "failed" for model in models):
        raise ModelFailed("no model could be loaded: " + "; ".join(f"{model.alias}: {model.why}" for model in models))
    raise ModelLoading()
