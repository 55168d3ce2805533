"""What a caller may hand over: texts, messages, token ids.  Everything else is refused by the name of the argument, before it travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import Any

import numpy as np

from lsm.api import ChatRequest, MediaPrompt
from lsm.errors import InvalidRequest
from lsm_embed.answer import Tokens
from lsm_embed.values import is_encodable

Messages = str | Sequence[Mapping[str, Any]]  # a text is one message of the user's
Prompt = str | Sequence[int] | Tokens

CONVERSATION = 'must be a text or a list such as [{"role": "user", "content": "Hello"}]'
TOKEN_IDS = "must be a flat list of token ids"
PROMPT = "must be a text or a flat list of token ids"
DEPTH_MAX = 64  # of lists and mappings in a message


def text_of(text: Any, name: str) -> str:
    """Raises `InvalidRequest`: no text, or one with half a character in it."""
    if not isinstance(text, str):
        raise InvalidRequest(f"must be a text, not {type(text).__name__}", name)
    _check_encodable(text, name)
    return text


def slot_of(slot: Any) -> int:
    """Raises `InvalidRequest`: no integer.  Which slots there are the model knows."""
    if isinstance(slot, bool) or not isinstance(slot, Integral):
        raise InvalidRequest(f"must be the number of a slot, not {type(slot).__name__}", "slot")
    return int(slot)


def prompt_of(prompt: Any) -> str | tuple[int, ...] | MediaPrompt:
    """Raises `InvalidRequest`: neither a text nor token ids."""
    if isinstance(prompt, MediaPrompt):
        return prompt
    return text_of(prompt, "prompt") if isinstance(prompt, str) else ids_of(prompt, "prompt", PROMPT)


def ids_of(tokens: Any, name: str = "tokens", wanted: str = TOKEN_IDS) -> tuple[int, ...]:
    """Token ids as plain integers.  Raises `InvalidRequest` for anything else, floats, booleans and bytes among it."""
    if not isinstance(tokens, Iterable) or isinstance(tokens, str | bytes | bytearray | memoryview | Mapping | Set):
        raise InvalidRequest(wanted, name)
    try:
        array = np.asarray(tokens if isinstance(tokens, np.ndarray) else list(tokens))
    except (TypeError, ValueError):  # lists of different lengths, an array without a dimension
        raise InvalidRequest(wanted, name) from None
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InvalidRequest(wanted, name)
    return tuple(array.tolist())


def chat_of(messages: Any, template_kwargs: Any) -> ChatRequest:
    """Raises `InvalidRequest` for what is no conversation; what is in the messages is checked by the template's room."""
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    if not isinstance(turns, Sequence) or not all(isinstance(turn, Mapping) for turn in turns):
        raise InvalidRequest(CONVERSATION, "messages")
    if template_kwargs is not None and not (isinstance(template_kwargs, Mapping) and all(isinstance(key, str) for key in template_kwargs)):
        raise InvalidRequest('must be a mapping such as {"enable_thinking": False}', "template_kwargs")
    _check_within(turns, "messages")
    _check_within(template_kwargs or {}, "template_kwargs")
    return ChatRequest(messages=tuple(turns), template_kwargs=template_kwargs or {})


def _check_within(value: Any, name: str, depth: int = 0) -> None:
    """All texts inside a value of lists and mappings."""
    if depth > DEPTH_MAX:
        raise InvalidRequest("is nested too deeply", name)
    if isinstance(value, str):
        _check_encodable(value, name)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check_within(key, name, depth + 1)
            _check_within(inner, name, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_within(inner, name, depth + 1)


def _check_encodable(text: str, name: str) -> None:
    if not is_encodable(text):
        raise InvalidRequest("holds half of a surrogate pair, which is no character", name)
