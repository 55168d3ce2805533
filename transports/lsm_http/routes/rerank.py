"""POST /v1/rerank and its other names: how well documents answer a query.  Jina's form, or TEI's where `texts` are given."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import Embedding
from lsm.errors import InvalidRequest, NotSupported
from lsm_http.context import Context, read
from lsm_http.errors import json_response
from lsm_http.mode_bodies import Rerank

PATHS = ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking")


def make_routes(context: Context) -> list[Route]:
    async def rerank(request: Request) -> Response:
        if not context.settings.computing.embeds or context.settings.computing.pooling_wanted not in (None, "rank"):
            raise NotSupported("This server does not support reranking. Start it with `--reranking`")
        body = await read(request, Rerank)
        model, _ = context.loaded(body.model)
        query, documents = _checked(body)
        ranked = await context.host.rank(model.alias, query, documents)
        return await context.work(request, partial(_response, model.alias, body, documents, ranked))

    return [Route(path, rerank, methods=["POST"]) for path in PATHS]


def _checked(body: Rerank) -> tuple[str, list[str]]:
    documents = body.documents or body.texts
    if body.query is None:
        raise InvalidRequest('"query" must be provided')
    if not documents:
        raise InvalidRequest('"documents" must be a non-empty string array')
    if body.top_n is not None and body.top_n < 0:
        raise InvalidRequest("must be 0 or more", "top_n")
    return body.query, documents


def _response(alias: str, body: Rerank, documents: list[str], ranked: tuple[Embedding, ...]) -> Response:
    scores = [float(one.vectors[0, 0]) for one in ranked]
    best_first = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    if body.texts is not None:
        return json_response([_tei(index, scores[index], documents[index] if body.return_text else None) for index in best_first])
    n_tokens = sum(one.n_tokens for one in ranked)
    return json_response(
        {
            "object": "list",
            "model": alias,
            "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
            "results": [{"index": index, "relevance_score": scores[index]} for index in best_first],
        }
    )


def _tei(index: int, score: float, text: str | None) -> dict[str, Any]:
    return {"index": index, "score": score, **({} if text is None else {"text": text})}
