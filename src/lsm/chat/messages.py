"""What a client may send as `messages`, and what templates get to see of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lsm.chat.media import MediaParts, is_media
from lsm.errors import InvalidRequest

ROLE_RENAMED = {"developer": "system"}  # OpenAI's newer name; no template knows it


def normalized(messages: Sequence[Mapping[str, Any]], media: MediaParts | None = None) -> tuple[dict[str, Any], ...]:
    """Copies of `messages` whose `content` is always a string: texts are joined by newlines, a missing one is empty.

    `media` collects images and sound; in the content its marker stands for each of them, without newlines around it.

    Raises `InvalidRequest`, which names the message by its index.
    """
    if not messages:
        raise InvalidRequest("must have at least one message", "messages")
    media = media or MediaParts()
    return tuple(_message(message, f"messages[{index}]", media) for index, message in enumerate(messages))


def without_prefill(messages: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], str]:
    """Split off a last message of the assistant, which the model is to continue: what comes before it, and its text, or ""."""
    if messages[-1]["role"] != "assistant":
        return messages, ""
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise InvalidRequest("Cannot have 2 or more assistant messages at the end of the list.", "messages")
    if messages[-1].get("tool_calls"):
        raise InvalidRequest("Cannot continue an assistant message that contains tool calls.", "messages")
    return messages[:-1], messages[-1]["content"]


def _message(message: Mapping[str, Any], where: str, media: MediaParts) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequest("must be an object with 'role' and 'content'", where)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequest("must be a non-empty string, such as 'user'", f"{where}.role")
    if message.get("content") is None:
        if role != "assistant":
            raise InvalidRequest("All non-assistant messages must contain 'content'", where)
        if not message.get("tool_calls"):
            raise InvalidRequest("Assistant message must contain either 'content' or 'tool_calls'!", where)
    return {**message, "role": ROLE_RENAMED.get(role, role), "content": _text(message.get("content"), f"{where}.content", media)}


def _text(content: Any, where: str, media: MediaParts) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise InvalidRequest("must be a string or a list of parts", where)
    text, ends_in_text = "", False
    for index, part in enumerate(content):
        piece, is_text = _part(part, f"{where}[{index}]", media)
        text += ("\n" if is_text and ends_in_text else "") + piece
        ends_in_text = is_text
    return text


def _part(part: Any, where: str, media: MediaParts) -> tuple[str, bool]:
    """Its text, and whether it is one, rather than a marker."""
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise InvalidRequest("must be an object with 'type', such as {\"type\": \"text\", \"text\": \"...\"}", where)
    kind = part["type"]
    if is_media(kind):
        return media.take(part, where), False
    if kind != "text":
        raise InvalidRequest(f"Unsupported content part type: '{kind}' is not supported by this model; send 'text'", where)
    if not isinstance(part.get("text"), str):
        raise InvalidRequest("must be a string", f"{where}.text")
    return str(part["text"]), True
