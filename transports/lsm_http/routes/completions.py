"""POST /v1/completions."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lsm.api import MediaPrompt
from lsm.errors import InvalidRequest, NotSupported
from lsm_http.answer import Answer, AnswerStream, whole
from lsm_http.bodies import Completion, Generation
from lsm_http.context import Context, read
from lsm_http.media import media_prompt
from lsm_http.openai_format import CompletionFormat, Format
from lsm_http.options import check_tokens, n_choices
from lsm_http.sse import interval_s


def make_routes(context: Context) -> list[Route]:
    async def completions(request: Request) -> Any:
        body = await read(request, Completion)
        model, facts = context.loaded(body.model)
        options = await context.work(request, partial(context.options, body, model, facts))
        prompt = await context.work(request, partial(prompt_of, body.prompt, facts.n_vocab, context, model.alias))
        answer = context.host.generate(model.alias, prompt, options)
        return await respond(context, body, answer, CompletionFormat(context.heading(model)))

    return [Route("/v1/completions", completions, methods=["POST"])]


async def respond(context: Context, body: Generation, answer: Answer, format: Format) -> Response | ASGIApp:
    if not body.stream:
        return await whole(answer, format)
    include_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return AnswerStream(
        answer, format, n_choices(body), include_usage, interval_s(body.sse_ping_interval, context.settings.sse_ping_interval_s)
    )


def prompt_of(prompt: Any, n_vocab: int, context: Context, alias: str) -> str | tuple[int, ...] | MediaPrompt:
    """A text; token ids; texts and ids mixed; a text with images and sound; or a list with one of these."""
    match prompt:
        case None | []:
            raise InvalidRequest("must not be empty", "prompt")
        case str():
            return prompt
        case {"prompt_string": str(text), **rest}:
            return media_prompt(text, rest["multimodal_data"], "prompt") if rest.get("multimodal_data") else text
        case [str() | list() | dict() as only]:
            return prompt_of(only, n_vocab, context, alias)
        case list() if all(isinstance(item, (str, list, dict)) for item in prompt):
            raise NotSupported("Field 'prompt': several prompts in one request are not supported yet; send one request for each")
        case list() if all(type(item) in (int, str) for item in prompt):  # a bool is an int to isinstance
            return _mixed(prompt, n_vocab, context, alias)
    raise InvalidRequest("must be a text, a list of token ids, or both mixed", "prompt")


def _mixed(items: list[int | str], n_vocab: int, context: Context, alias: str) -> tuple[int, ...]:
    """BOS, if the model wants one, comes before a text at the start; who starts with ids says everything."""
    tokens: list[int] = []
    for index, item in enumerate(items):
        if isinstance(item, str):
            tokens += context.host.tokenize(alias, item, add_special=index == 0)
        else:
            tokens += check_tokens([item], n_vocab, "prompt")
    return tuple(tokens)
