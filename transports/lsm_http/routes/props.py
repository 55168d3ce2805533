"""GET /props: how this server is set up, and what a request gets that asks for nothing.  `?model=` picks one of several models."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import ModelFacts, ModelInfo, Options
from lsm.errors import NotSupported
from lsm_http.context import Context
from lsm_http.errors import json_response


def make_routes(context: Context) -> list[Route]:
    async def props(request: Request) -> Response:
        return json_response(_props(context, *context.loaded(request.query_params.get("model"))))

    async def change(request: Request) -> Response:
        """llama-server has nothing to change here today either."""
        if not context.settings.props:
            raise NotSupported("This server does not support changing global properties. Start it with `--props`")
        return json_response({"success": True})

    return [Route("/props", props), Route("/props", change, methods=["POST"])]


def _props(context: Context, info: ModelInfo, facts: ModelFacts) -> dict[str, Any]:
    settings = context.settings
    return {
        "default_generation_settings": {"params": params_of(settings.options_for(facts.sampling)), "n_ctx": facts.n_ctx_slot},
        "total_slots": facts.n_slots,
        "model_alias": info.alias,
        "model_ftype": facts.description,
        "model_path": info.path,
        "modalities": {"vision": facts.has_vision, "audio": facts.has_audio, "video": False},
        **({"media_marker": facts.media_marker} if facts.media_marker else {}),
        "endpoint_slots": settings.slots,
        "endpoint_props": settings.props,
        "endpoint_metrics": settings.metrics,
        "ui": settings.ui,
        "ui_settings": {},
        "chat_template": facts.chat_template,
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "build_info": context.build,
        "is_sleeping": info.sleep_state == "asleep",
        "cors_proxy_enabled": False,
    }


def params_of(options: Options) -> dict[str, Any]:
    """By the names that a request uses.  JSON has no infinity: a bias of -inf is `false`, as in a request."""
    sampling = asdict(options.sampling)
    sampling["logit_bias"] = [[token, False if bias == -math.inf else bias] for token, bias in options.sampling.logit_bias]
    sampling["n_probs"] = options.sampling.n_probs or 0
    sampling["seed"] = options.sampling.seed % 2**32  # -1 as llama-server shows it
    return {
        **sampling,
        "n_predict": options.max_tokens,
        "max_tokens": options.max_tokens,
        "stop": options.stop,
        "stream": False,
        "cache_prompt": options.cache_prompt,
        "t_max_predict_ms": options.t_max_predict_ms,
        "n_keep": options.n_keep,
        "n_discard": options.n_discard,
        "n_cache_reuse": options.n_cache_reuse,
        "timings_per_token": options.timings_per_token,
    }
