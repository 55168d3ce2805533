"""POST /v1/embeddings in OpenAI's form; /embeddings and /embedding in llama-server's."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import Embedding
from lsm.errors import InvalidRequest, NotSupported
from lsm_http.context import Context, read
from lsm_http.errors import json_response
from lsm_http.inputs import Input, inputs_of
from lsm_http.mode_bodies import Embeddings

NORM_MAX = 1000  # of --embd-normalize, too


def make_routes(context: Context) -> list[Route]:
    async def native(request: Request) -> Response:
        body = await read(request, Embeddings)
        _, made = await _embed(context, request, body)
        return await context.work(request, partial(_native_response, made))

    async def openai(request: Request) -> Response:
        body = await read(request, Embeddings)
        if body.encoding_format not in (None, "float", "base64"):
            raise InvalidRequest("must be float or base64", "encoding_format")
        alias, made = await _embed(context, request, body, is_openai=body.input is not None)
        if body.input is None:  # `content` is llama-server's own name
            return await context.work(request, partial(_native_response, made))
        return await context.work(request, partial(_openai_response, alias, made, body.encoding_format == "base64"))

    return [
        Route("/v1/embeddings", openai, methods=["POST"]),
        *(Route(path, native, methods=["POST"]) for path in ("/embeddings", "/embedding")),
    ]


async def _embed(context: Context, request: Request, body: Embeddings, is_openai: bool = False) -> tuple[str, tuple[Embedding, ...]]:
    if not context.settings.computing.embeds:
        raise NotSupported("This server does not support embeddings. Start it with `--embeddings`")
    model, facts = context.loaded(body.model)
    if is_openai and facts.pooling == "none":
        raise InvalidRequest("Pooling type 'none' is not OAI compatible. Please use a different pooling type")
    if body.dimensions not in (None, facts.n_embd_out):
        raise InvalidRequest(f"embeddings of this model have {facts.n_embd_out} dimensions and cannot be shortened", "dimensions")
    if body.embd_normalize is not None and not -1 <= body.embd_normalize <= NORM_MAX:
        raise InvalidRequest(f"Value must be between -1 and {NORM_MAX}", "embd_normalize")
    inputs = await context.work(request, partial(_inputs, context, body, model.alias, facts.n_vocab))
    return model.alias, await context.host.embed(model.alias, inputs, body.embd_normalize)


def _inputs(context: Context, body: Embeddings, alias: str, n_vocab: int) -> list[Input]:
    field = "input" if body.input is not None or body.content is None else "content"
    return inputs_of(getattr(body, field), field, partial(context.host.tokenize, alias), n_vocab)


def _native_response(made: tuple[Embedding, ...]) -> Response:
    return json_response([{"index": index, "embedding": one.vectors.tolist()} for index, one in enumerate(made)])


def _openai_response(alias: str, made: tuple[Embedding, ...], as_base64: bool) -> Response:
    n_tokens = sum(one.n_tokens for one in made)
    return json_response(
        {
            "object": "list",
            "model": alias,
            "data": [_openai(index, one, as_base64) for index, one in enumerate(made)],
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        }
    )


def _openai(index: int, one: Embedding, as_base64: bool) -> dict[str, Any]:
    vector = one.vectors[0]
    if not as_base64:
        return {"object": "embedding", "index": index, "embedding": vector.tolist()}
    text = base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return {"object": "embedding", "index": index, "embedding": text, "encoding_format": "base64"}
