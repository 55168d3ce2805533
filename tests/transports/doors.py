"""One adapter per door, all with the same verbs, so that one suite runs over all of them.

Every adapter is synchronous; what needs a loop lives in a portal.  Errors become `Refused`, whose `type` is that of `lsm.errors`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import httpx
import lsm_embed
import lsm_http
import trio
from lsm_embed.async_models import AsyncModels, OpenHost, serve
from lsm_embed.portal import Portal

from lsm.config import Settings
from lsm.errors import LsmError
from tests.transports.limits import LIMIT_S


class Refused(Exception):
    def __init__(self, type: str, message: str) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.message = message


@dataclass(frozen=True)
class Reply:
    text: str
    finish: str  # "stop" or "length"
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class Door(Protocol):
    name: str

    def names(self) -> list[str]: ...

    def chat(self, model: str, text: str, **wishes: Any) -> Reply: ...

    def complete(self, model: str, prompt: str, **wishes: Any) -> Reply: ...

    def pieces(self, model: str, prompt: str) -> list[str]:
        """The answer as a stream gives it."""
        ...

    def abandon(self, model: str, prompt: str, meanwhile: Callable[[], object]) -> None:
        """Begin an answer, do something else once its first piece is there, and leave."""
        ...

    def tokenize(self, model: str, text: str) -> list[int]: ...

    def embed(self, model: str, inputs: list[str]) -> list[list[float]]: ...

    def state(self) -> dict[str, Any]: ...

    def sleep(self, model: str) -> None: ...

    def wake(self, model: str) -> None: ...


@contextmanager
def own_errors() -> Iterator[None]:
    try:
        yield
    except LsmError as error:
        raise Refused(error.type, error.message) from error


def reply_of(answer: lsm_embed.Answer) -> Reply:
    finish = "length" if answer.stop_type == "limit" else "stop"
    return Reply(answer.text, finish, answer.prompt_tokens, answer.timings.cache_n, answer.completion_tokens)


class BlockingDoor:
    name = "embed"

    def __init__(self, models: lsm_embed.Models) -> None:
        self._models = models

    def names(self) -> list[str]:
        return list(self._models)

    def chat(self, model: str, text: str, **wishes: Any) -> Reply:
        with own_errors():
            return reply_of(self._models[model].chat(text, **wishes))

    def complete(self, model: str, prompt: str, **wishes: Any) -> Reply:
        with own_errors():
            return reply_of(self._models[model].complete(prompt, **wishes))

    def pieces(self, model: str, prompt: str) -> list[str]:
        with own_errors(), self._models[model].stream_complete(prompt) as stream:
            return list(stream)

    def abandon(self, model: str, prompt: str, meanwhile: Callable[[], object]) -> None:
        with self._models[model].stream_complete(prompt) as stream:
            next(stream)
            meanwhile()

    def tokenize(self, model: str, text: str) -> list[int]:
        with own_errors():
            return list(map(int, self._models[model].tokenize(text)))

    def embed(self, model: str, inputs: list[str]) -> list[list[float]]:
        with own_errors():
            return [list(map(float, vector)) for vector in self._models[model].embed(inputs)]

    def state(self) -> dict[str, Any]:
        return self._models.state

    def sleep(self, model: str) -> None:
        self._models[model].sleep()

    def wake(self, model: str) -> None:
        self._models[model].wake()


class AsyncDoor:
    name = "embed-async"

    def __init__(self, portal: Portal[AsyncModels]) -> None:
        self._portal = portal
        self._models = portal.context

    def names(self) -> list[str]:
        return self._portal.call_now(list, self._models)

    def chat(self, model: str, text: str, **wishes: Any) -> Reply:
        with own_errors():
            return reply_of(self._portal.call(lambda: self._models[model].chat(text, **wishes)))

    def complete(self, model: str, prompt: str, **wishes: Any) -> Reply:
        with own_errors():
            return reply_of(self._portal.call(lambda: self._models[model].complete(prompt, **wishes)))

    def pieces(self, model: str, prompt: str) -> list[str]:
        async def read() -> list[str]:
            async with self._models[model].stream_complete(prompt) as stream:
                return [piece async for piece in stream]

        with own_errors():
            return self._portal.call(read)

    def abandon(self, model: str, prompt: str, meanwhile: Callable[[], object]) -> None:
        async def leave() -> None:
            async with self._models[model].stream_complete(prompt) as stream:
                await anext(stream)
                await trio.to_thread.run_sync(meanwhile)

        self._portal.call(leave)

    def tokenize(self, model: str, text: str) -> list[int]:
        with own_errors():
            return list(map(int, self._portal.call(lambda: self._models[model].tokenize(text))))

    def embed(self, model: str, inputs: list[str]) -> list[list[float]]:
        with own_errors():
            return [list(map(float, vector)) for vector in self._portal.call(lambda: self._models[model].embed(inputs))]

    def state(self) -> dict[str, Any]:
        return self._portal.call_now(lambda: self._models.state)

    def sleep(self, model: str) -> None:
        self._portal.call(self._models[model].sleep)

    def wake(self, model: str) -> None:
        self._portal.call(self._models[model].wake)


class HttpDoor:
    name = "http"

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def names(self) -> list[str]:
        return [model["id"] for model in self._get("/v1/models")["data"]]

    def chat(self, model: str, text: str, **wishes: Any) -> Reply:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **wishes}
        reply = self._post("/v1/chat/completions", body)
        return self._reply(reply, reply["choices"][0]["message"]["content"])

    def complete(self, model: str, prompt: str, **wishes: Any) -> Reply:
        reply = self._post("/v1/completions", {"model": model, "prompt": prompt, **wishes})
        return self._reply(reply, reply["choices"][0]["text"])

    def pieces(self, model: str, prompt: str) -> list[str]:
        return list(self._stream(model, prompt))

    def abandon(self, model: str, prompt: str, meanwhile: Callable[[], object]) -> None:
        with contextlib.closing(self._stream(model, prompt)) as stream:
            next(stream)
            meanwhile()

    def tokenize(self, model: str, text: str) -> list[int]:
        tokens: list[int] = self._post("/tokenize", {"model": model, "content": text})["tokens"]
        return tokens

    def embed(self, model: str, inputs: list[str]) -> list[list[float]]:
        return [one["embedding"] for one in self._post("/v1/embeddings", {"model": model, "input": inputs})["data"]]

    def state(self) -> dict[str, Any]:
        return self._get("/lsm/state")

    def sleep(self, model: str) -> None:
        self._post("/lsm/sleep", {"model": model})

    def wake(self, model: str) -> None:
        self._post("/lsm/wake", {"model": model})

    def _stream(self, model: str, prompt: str) -> Generator[str, None, None]:
        body = {"model": model, "prompt": prompt, "stream": True}
        with self._client.stream("POST", "/v1/completions", json=body) as response:
            for line in response.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = httpx.Response(200, content=line.removeprefix("data: ")).json()
                if "error" in chunk:
                    raise Refused(chunk["error"]["type"], chunk["error"]["message"])
                if text := "".join(choice["text"] for choice in chunk["choices"]):
                    yield text

    def _reply(self, body: dict[str, Any], text: str) -> Reply:
        usage = body["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return Reply(text, body["choices"][0]["finish_reason"], usage["prompt_tokens"], cached, usage["completion_tokens"])

    def _get(self, path: str) -> dict[str, Any]:
        return self._checked(self._client.get(path))

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._checked(self._client.post(path, json=body))

    def _checked(self, response: httpx.Response) -> dict[str, Any]:
        body: dict[str, Any] = response.json()
        if response.is_error:
            raise Refused(body["error"]["type"], body["error"]["message"])
        return body


class McpDoor:
    name = "mcp"

    def __init__(self, portal: Portal[Any]) -> None:
        self._portal = portal
        self._client = portal.context

    def names(self) -> list[str]:
        return [model["name"] for model in self._call("list_models")["models"]]

    def chat(self, model: str, text: str, **wishes: Any) -> Reply:
        return self._reply(self._call("chat", model=model, messages=[{"role": "user", "content": text}], **wishes))

    def complete(self, model: str, prompt: str, **wishes: Any) -> Reply:
        return self._reply(self._call("complete", model=model, prompt=prompt, **wishes))

    def pieces(self, model: str, prompt: str) -> list[str]:
        """An answer comes whole; progress may tell of its pieces."""
        return [self.complete(model, prompt).text]

    def abandon(self, model: str, prompt: str, meanwhile: Callable[[], object]) -> None:
        async def leave() -> None:
            with trio.CancelScope() as scope:

                async def begun(progress: float, total: float | None, message: str | None) -> None:
                    await trio.to_thread.run_sync(meanwhile)
                    scope.cancel()

                await self._client.call_tool("complete", {"model": model, "prompt": prompt}, progress_callback=begun)

        self._portal.call(leave)

    def tokenize(self, model: str, text: str) -> list[int]:
        raise AssertionError("tokens and vectors mean nothing to a model that uses tools: tests of this door leave them out")

    def embed(self, model: str, inputs: list[str]) -> list[list[float]]:
        raise AssertionError("tokens and vectors mean nothing to a model that uses tools: tests of this door leave them out")

    def state(self) -> dict[str, Any]:
        return self._call("show_state")

    def sleep(self, model: str) -> None:
        self._call("sleep", model=model)

    def wake(self, model: str) -> None:
        self._call("wake", model=model)

    def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self._portal.call(self._client.call_tool, tool, arguments)
        content: dict[str, Any] = result.structured_content
        if result.is_error:
            raise Refused(content["error"]["type"], content["error"]["message"])
        return content

    def _reply(self, written: dict[str, Any]) -> Reply:
        finish = "length" if written["stop_type"] == "limit" else "stop"
        return Reply(written["text"], finish, written["prompt_tokens"], written["cached_tokens"], written["completion_tokens"])


# Opening.  `mcp_module` is what a process of its own runs, since an open_host cannot be handed to one.


@contextmanager
def open_blocking(settings: Settings, open_host: OpenHost, mcp_module: str) -> Iterator[Door]:
    with lsm_embed.Models(Portal(lambda: serve(settings, open_host))) as models:
        yield BlockingDoor(models)


@contextmanager
def open_async(settings: Settings, open_host: OpenHost, mcp_module: str) -> Iterator[Door]:
    with closing(Portal(lambda: serve(settings, open_host))) as portal:
        yield AsyncDoor(portal)


@contextmanager
def open_http(settings: Settings, open_host: OpenHost, mcp_module: str) -> Iterator[Door]:
    @asynccontextmanager
    async def listening() -> AsyncIterator[str]:
        async with trio.open_nursery() as nursery:
            yield await nursery.start(partial(lsm_http.serve, settings, open_host=open_host))
            nursery.cancel_scope.cancel()

    with closing(Portal(listening)) as portal, httpx.Client(base_url=portal.context, timeout=LIMIT_S) as client:
        yield HttpDoor(client)


@contextmanager
def open_mcp(settings: Settings, open_host: OpenHost, mcp_module: str) -> Iterator[Door]:
    with closing(Portal(lambda: mcp_client(mcp_module, arguments_of(settings)))) as portal:
        yield McpDoor(portal)


OPENERS: Mapping[str, Callable[[Settings, OpenHost, str], Any]] = {
    BlockingDoor.name: open_blocking,
    AsyncDoor.name: open_async,
    HttpDoor.name: open_http,
    McpDoor.name: open_mcp,
}


@asynccontextmanager
async def mcp_client(module: str, arguments: Sequence[str]) -> AsyncIterator[Any]:
    """The SDK's client, and the process that it starts."""
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONWARNINGS": "error"}
    parameters = StdioServerParameters(command=sys.executable, args=["-m", module, *arguments], env=environment)
    with open(os.devnull, "w") as log:
        async with Client(stdio_client(parameters, log)) as client:
            yield client


def arguments_of(settings: Settings) -> list[str]:
    words = ["--parallel", str(settings.n_parallel), "--ctx-size", str(settings.n_ctx), "--threads", str(settings.threads)]
    words += ["--arena", str(settings.arena)] if settings.arena else []
    words += ["--ignore-eos"] if settings.options.sampling.ignore_eos else []
    for model in settings.models:
        words += ["--model", str(model.path), "--alias", model.alias]
    return words


@contextmanager
def closing(portal: Portal[Any]) -> Iterator[Portal[Any]]:
    try:
        yield portal
    finally:
        portal.close()
