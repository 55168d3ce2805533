"""POST /completion and /infill, in llama-server's own form."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from lsm.api import Infill, MediaPrompt, ModelInfo, Options, Prompt
from lsm.errors import InvalidRequest
from lsm_http.bodies import Completion, Generation
from lsm_http.context import Context, read
from lsm_http.mode_bodies import Infill as InfillBody
from lsm_http.native_format import NativeFormat
from lsm_http.routes.completions import prompt_of, respond
from lsm_http.routes.props import params_of


def make_routes(context: Context) -> list[Route]:
    async def completion(request: Request) -> Any:
        body = await read(request, Completion)
        model, facts = context.loaded(body.model)
        options = await context.work(request, partial(context.options, body, model, facts))
        prompt = await context.work(request, partial(prompt_of, body.prompt, facts.n_vocab, context, model.alias))
        answer = context.host.generate(model.alias, prompt, options)
        return await respond(context, body, answer, _format(model, _text_of(prompt, context, model.alias), options, body))

    async def infill(request: Request) -> Any:
        body = await read(request, InfillBody)
        model, facts = context.loaded(body.model)
        wanted = _infill(body)
        options = await context.work(request, partial(context.options, body, model, facts))
        answer = context.host.infill(model.alias, wanted, options)
        return await respond(context, body, answer, _format(model, wanted.prompt, options, body))

    return [
        *(Route(path, completion, methods=["POST"]) for path in ("/completion", "/completions")),
        Route("/infill", infill, methods=["POST"]),
    ]


def _text_of(prompt: Prompt, context: Context, alias: str) -> str:
    match prompt:
        case str():
            return prompt
        case MediaPrompt(text, _):
            return text
    return context.host.detokenize(alias, prompt)


def _format(model: ModelInfo, prompt: str, options: Options, body: Generation) -> NativeFormat:
    with_tokens, fields = bool(body.return_tokens), tuple(body.response_fields or ())
    return NativeFormat(model.alias, prompt, params_of(options), with_tokens, fields)


def _infill(body: InfillBody) -> Infill:
    if body.input_prefix is None:
        raise InvalidRequest('"input_prefix" is required')
    if body.input_suffix is None:
        raise InvalidRequest('"input_suffix" is required')
    extra = tuple((file.filename or "tmp", file.text) for file in body.input_extra or ())
    return Infill(prefix=body.input_prefix, suffix=body.input_suffix, prompt=body.prompt or "", extra=extra)
