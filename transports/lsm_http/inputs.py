"""What embeddings are asked of: one input or several, each a text, token ids, both mixed, or an object with content parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lsm.errors import InvalidRequest, NotSupported
from lsm_http.options import check_tokens

Input = str | tuple[int, ...]
Tokenize = Callable[..., Sequence[int]]


def inputs_of(value: Any, field: str, tokenize: Tokenize, n_vocab: int) -> list[Input]:
    """`tokenize` takes a text and `add_special`.  Raises `InvalidRequest` naming the field."""
    is_list = isinstance(value, list) and not any(type(item) is int for item in value)
    entries = value if is_list else [value]
    if not entries:
        raise InvalidRequest("must not be empty", field)
    return [_input(entry, field, tokenize, n_vocab) for entry in entries]


def _input(entry: Any, field: str, tokenize: Tokenize, n_vocab: int) -> Input:
    match entry:
        case None | "" | []:
            raise InvalidRequest("must not be empty", field)
        case str():
            return entry
        case {"prompt_string": str(text), **rest}:
            if rest.get("multimodal_data"):
                raise NotSupported(f"Field '{field}': multimodal data is not supported by this model")
            return _input(text, field, tokenize, n_vocab)
        case {"content": content}:
            return _input(_joined(content, field), field, tokenize, n_vocab)
        case list() if all(type(item) in (int, str) for item in entry):  # a bool is an int to isinstance
            return _mixed(entry, field, tokenize, n_vocab)
    raise InvalidRequest("must be a text, a list of token ids, both mixed, or a list of these", field)


def _mixed(items: list[int | str], field: str, tokenize: Tokenize, n_vocab: int) -> tuple[int, ...]:
    """Special tokens come with a text at the start; who starts with ids says everything."""
    tokens: list[int] = []
    for index, item in enumerate(items):
        tokens += tokenize(item, add_special=index == 0) if isinstance(item, str) else check_tokens([item], n_vocab, field)
    return tuple(tokens)


def _joined(content: Any, field: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [None]:
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url" | "input_audio" | "input_video" as kind}:
                raise NotSupported(f"Field '{field}': a part of type '{kind}' cannot be embedded by this model; send text")
            case _:
                raise InvalidRequest('content must be a text, or a list of parts such as {"type": "text", "text": "..."}', field)
    return "".join(texts)
