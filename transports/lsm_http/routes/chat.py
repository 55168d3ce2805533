"""POST /v1/chat/completions, and POST /apply-template: the same body, only rendered."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import ChatRequest
from lsm.errors import InvalidRequest
from lsm_http.bodies import Chat
from lsm_http.context import Context, read
from lsm_http.errors import json_response
from lsm_http.openai_format import ChatFormat
from lsm_http.routes.completions import respond


def make_routes(context: Context) -> list[Route]:
    async def chat_completions(request: Request) -> Any:
        body = await read(request, Chat)
        model, facts = context.loaded(body.model)
        chat = conversation(body)
        options = await context.work(request, partial(context.options, body, model, facts))
        answer = context.host.chat(model.alias, chat, options)
        return await respond(context, body, answer, ChatFormat(context.heading(model)))

    async def apply_template(request: Request) -> Response:
        body = await read(request, Chat)
        model, _ = context.loaded(body.model)
        prompt = await context.work(request, partial(context.host.render, model.alias, conversation(body)))
        return json_response({"prompt": prompt})

    return [
        *(Route(path, chat_completions, methods=["POST"]) for path in ("/v1/chat/completions", "/chat/completions")),
        Route("/apply-template", apply_template, methods=["POST"]),
    ]


def conversation(body: Chat) -> ChatRequest:
    """Raises `InvalidRequest`.  The messages themselves are checked where they are rendered."""
    if body.messages is None:
        raise InvalidRequest("'messages' is required")
    return ChatRequest(
        messages=tuple(body.messages),
        add_generation_prompt=_opens_answer(body),
        template_kwargs={**(body.chat_template_kwargs or {}), **_effort(body.reasoning_effort)},
    )


def _opens_answer(body: Chat) -> bool:
    if not body.continue_final_message:
        return body.add_generation_prompt is not False
    if body.add_generation_prompt:
        raise InvalidRequest("Cannot set both add_generation_prompt and continue_final_message to true.", "continue_final_message")
    if not body.messages or body.messages[-1].get("role") != "assistant":
        raise InvalidRequest("the last message is not the assistant's, so there is nothing to continue", "continue_final_message")
    return True  # a last message of the assistant is always continued


def _effort(effort: str | None) -> dict[str, Any]:
    if effort is None:
        return {}
    return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
