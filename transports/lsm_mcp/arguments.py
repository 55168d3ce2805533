"""What the tools take and give.  The JSON schemas that clients see are made from these types, and arguments are checked against them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

ModelName = Annotated[str, Meta(description="Name of the model, as list_models gives it. Left out: the first one.")]


class NoArguments(Struct, forbid_unknown_fields=True):
    pass


class OneModel(Struct, forbid_unknown_fields=True):
    model: ModelName = ""


class Wishes(Struct, forbid_unknown_fields=True, kw_only=True):
    """How to write; what is left out is as the server was started."""

    model: ModelName = ""
    max_tokens: Annotated[int | None, Meta(description="Longest answer, in tokens; -1: until the model ends.")] = None
    stop: Annotated[list[str] | None, Meta(description="Texts before which the answer ends.")] = None
    temperature: Annotated[float | None, Meta(description="0 always takes the likeliest token.")] = None
    top_k: Annotated[int | None, Meta(description="Keep the k likeliest tokens; 0 keeps all.")] = None
    top_p: Annotated[float | None, Meta(description="Keep the likeliest tokens up to this sum; 1 keeps all.")] = None
    min_p: Annotated[float | None, Meta(description="Keep tokens this likely, relative to the likeliest; 0 keeps all.")] = None
    seed: Annotated[int | None, Meta(description="Seed of the random numbers; the same seed gives the same answer.")] = None


class Message(Struct, forbid_unknown_fields=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Chat(Wishes, kw_only=True):
    messages: Annotated[list[Message], Meta(description="The conversation, oldest message first.", min_length=1)]


class Complete(Wishes, kw_only=True):
    prompt: Annotated[str, Meta(description="The text to continue; no chat template is applied.", min_length=1)]


class ListedModel(Struct):
    name: str
    loaded: Annotated[str, Meta(description="ready, or how far the load is; failed says why in `why`")]
    awake: Annotated[str, Meta(description="awake: in device memory; asleep: wakes with the next request")]
    architecture: str
    context_tokens: Annotated[int, Meta(description="Prompt and answer together; 0 until the model is loaded.")]
    size_bytes: int
    why: str


class ListedModels(Struct):
    models: list[ListedModel]


class Written(Struct):
    model: str
    text: str
    stop_type: Annotated[str, Meta(description="eos: the model ended; word: a stop text; limit: max_tokens or the context")]
    truncated: Annotated[bool, Meta(description="The context was full.")]
    prompt_tokens: int
    cached_tokens: Annotated[int, Meta(description="Prompt tokens that did not have to be computed again.")]
    completion_tokens: int


class State(Struct):
    models: list[dict[str, Any]]
    token: Annotated[dict[str, Any], Meta(description="Who holds the device, and who waits for it.")]
    budget_bytes: int | None
    counters: dict[str, Any]


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """JSON schema with an object at its root, as MCP wants it."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: dict[str, Any] = parts.pop(kind.__name__)
    root.pop("title", None)
    return root | ({"$defs": parts} if parts else {})
