"""POST /tokenize and /detokenize."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.errors import InvalidRequest
from lsm_http.bodies import Detokenize, Tokenize
from lsm_http.context import Context, read
from lsm_http.errors import json_response
from lsm_http.options import check_tokens


def make_routes(context: Context) -> list[Route]:
    async def tokenize(request: Request) -> Response:
        body = await read(request, Tokenize)
        model, facts = context.loaded(body.model)
        return await context.work(request, partial(_tokenized, context, model.alias, body, facts.n_vocab))

    async def detokenize(request: Request) -> Response:
        body = await read(request, Detokenize)
        model, facts = context.loaded(body.model)
        return await context.work(request, partial(_detokenized, context, model.alias, body, facts.n_vocab))

    return [Route("/tokenize", tokenize, methods=["POST"]), Route("/detokenize", detokenize, methods=["POST"])]


def _tokenized(context: Context, alias: str, body: Tokenize, n_vocab: int) -> Response:
    tokens = _tokens(context, alias, body, n_vocab)
    if not body.with_pieces:
        return json_response({"tokens": tokens})
    pieces = context.host.pieces(alias, tokens)
    return json_response({"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in zip(tokens, pieces, strict=True)]})


def _detokenized(context: Context, alias: str, body: Detokenize, n_vocab: int) -> Response:
    if body.tokens is None:
        raise InvalidRequest("is required", "tokens")
    return json_response({"content": context.host.detokenize(alias, check_tokens(body.tokens, n_vocab, "tokens"))})


def _tokens(context: Context, alias: str, body: Tokenize, n_vocab: int) -> list[int]:
    """`content` may mix texts and ids, as a prompt may; special tokens are added before a text at the start only."""
    if body.content is None:
        raise InvalidRequest("is required", "content")
    tokens: list[int] = []
    for index, item in enumerate([body.content] if isinstance(body.content, str) else body.content):
        if isinstance(item, str):
            add_special = bool(body.add_special) and index == 0
            tokens += context.host.tokenize(alias, item, add_special=add_special, parse_special=body.parse_special is not False)
        else:
            tokens += check_tokens([item], n_vocab, "content")
    return tokens


def _piece(piece: bytes) -> Any:
    """A text, or a list of bytes where a token has only a part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
