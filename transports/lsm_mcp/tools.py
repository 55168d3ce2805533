"""The tools: a table, and one function per tool over the in-process door."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
import trio
from lsm_embed import Answer, AsyncModel, AsyncModels, AsyncStream

from lsm_mcp.arguments import Chat, Complete, ListedModel, ListedModels, NoArguments, OneModel, State, Wishes, Written

PROGRESS_INTERVAL_S = 0.25

Report = Callable[[int, int | None, str], Awaitable[None]]  # tokens so far, at most, text since the last report


@dataclass(frozen=True, slots=True)
class Tool:
    """`run` gets the models, checked arguments of type `takes` and a function to report progress; it returns what `gives` describes."""

    name: str
    title: str
    description: str
    takes: type[msgspec.Struct]
    gives: type[msgspec.Struct]
    run: Callable[[AsyncModels, Any, Report], Awaitable[msgspec.Struct | dict[str, Any]]]
    reads_only: bool


async def list_models(models: AsyncModels, arguments: NoArguments, report: Report) -> ListedModels:
    return ListedModels([_listed(models[name]) for name in models])


async def chat(models: AsyncModels, arguments: Chat, report: Report) -> Written:
    model = _chosen(models, arguments.model)
    messages = [{"role": message.role, "content": message.content} for message in arguments.messages]
    return await _write(model, model.stream_chat(messages, **_wishes(arguments)), arguments.max_tokens, report)


async def complete(models: AsyncModels, arguments: Complete, report: Report) -> Written:
    model = _chosen(models, arguments.model)
    return await _write(model, model.stream_complete(arguments.prompt, **_wishes(arguments)), arguments.max_tokens, report)


async def show_state(models: AsyncModels, arguments: NoArguments, report: Report) -> dict[str, Any]:
    return models.state


async def sleep(models: AsyncModels, arguments: OneModel, report: Report) -> ListedModel:
    model = _chosen(models, arguments.model)
    await model.sleep()
    return _listed(model)


async def wake(models: AsyncModels, arguments: OneModel, report: Report) -> ListedModel:
    model = _chosen(models, arguments.model)
    await model.wake()
    return _listed(model)


TOOLS: tuple[Tool, ...] = (
    Tool(
        "list_models",
        "List models",
        "The language models that can be used here, and how each is.",
        NoArguments,
        ListedModels,
        list_models,
        reads_only=True,
    ),
    Tool("chat", "Chat", "Let a model answer a conversation. A sleeping model is woken.", Chat, Written, chat, reads_only=False),
    Tool(
        "complete",
        "Complete a text",
        "Let a model continue a text as it stands. A sleeping model is woken.",
        Complete,
        Written,
        complete,
        reads_only=False,
    ),
    Tool(
        "show_state",
        "Show state",
        "What each model holds in memory and why, who has the device, and who waits.",
        NoArguments,
        State,
        show_state,
        reads_only=True,
    ),
    Tool(
        "sleep",
        "Put to sleep",
        "Let a model leave device memory after the current step. Nothing is lost.",
        OneModel,
        ListedModel,
        sleep,
        reads_only=False,
    ),
    Tool(
        "wake",
        "Wake up",
        "Bring a model into device memory, loading it if need be, and wait for it.",
        OneModel,
        ListedModel,
        wake,
        reads_only=False,
    ),
)


def _chosen(models: AsyncModels, name: str) -> AsyncModel:
    return models[name or next(iter(models))]


def _wishes(arguments: Wishes) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in Wishes.__struct_fields__ if name != "model"}


async def _write(
    model: AsyncModel, opening: AbstractAsyncContextManager[AsyncStream], max_tokens: int | None, report: Report
) -> Written:
    at_most = max_tokens if max_tokens is not None and max_tokens > 0 else None
    async with opening as stream:
        next_report_s, unreported = trio.current_time(), ""
        async for piece in stream:
            unreported += piece
            if trio.current_time() >= next_report_s:
                await report(len(stream.tokens), at_most, unreported)
                next_report_s, unreported = trio.current_time() + PROGRESS_INTERVAL_S, ""
        return _written(model.alias, await stream.rest())


def _written(name: str, answer: Answer) -> Written:
    return Written(
        model=name,
        text=answer.text,
        stop_type=answer.stop_type,
        truncated=answer.truncated,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.timings.cache_n,
        completion_tokens=answer.completion_tokens,
    )


def _listed(model: AsyncModel) -> ListedModel:
    info = model.info
    facts = dataclasses.asdict(info.facts) if info.facts is not None else {}
    return ListedModel(
        name=info.alias,
        loaded=info.load_state,
        awake=info.sleep_state,
        architecture=facts.get("architecture", ""),
        context_tokens=facts.get("n_ctx_slot", 0),
        size_bytes=facts.get("size_bytes", 0),
        why=info.why,
    )
