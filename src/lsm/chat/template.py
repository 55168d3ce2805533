"""A model's chat template, ready to render."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateSyntaxError
from jinja2.exceptions import TemplateError

from lsm.chat import builtin
from lsm.chat.boundaries import user_marker
from lsm.chat.environment import TemplateRefusal, make_environment
from lsm.chat.media import MediaParts
from lsm.chat.messages import normalized, without_prefill
from lsm.errors import InvalidRequest, ModelFileError
from lsm.values import ChatRequest

PROBE = "a text that no template has in itself"
REMEDY = "give another one with --chat-template or --chat-template-file"


class ChatTemplate:
    """Turns a conversation into a prompt.

    `source` is Jinja text, the name of a built-in template (`chatml`, `gemma`), or empty: then the architecture chooses a built-in one,
    and `origin` says so.  `adds_bos`: the tokenizer puts BOS in front by itself, so the template's own is left out.

    Raises `ModelFileError` if the text is no template.
    """

    def __init__(
        self,
        source: str,
        bos_token: str,
        eos_token: str,
        *,
        architecture: str = "",
        adds_bos: bool = True,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        name = source if source in builtin.TEMPLATES else "" if source.strip() else builtin.name_for(architecture)
        self.source = builtin.TEMPLATES[name] if name else source
        self.origin = f"built-in template '{name}'" if name else "the model's own template"
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._leading_bos = bos_token if adds_bos else ""
        self._template = _compiled(self.source, clock)
        self._wants_parts = self._shows_only_parts()

    def render(self, chat: ChatRequest, media: MediaParts | None = None) -> str:
        """The prompt.  A last message of the assistant is left open, for the model to continue.  `media` collects images and sound.

        Raises `InvalidRequest` if the messages are wrong or the template refuses them.
        """
        messages: Sequence[dict[str, Any]] = normalized(chat.messages, media)
        prefill = ""
        if chat.add_generation_prompt:
            messages, prefill = without_prefill(messages)
        context = {**chat.template_kwargs, "add_generation_prompt": chat.add_generation_prompt}
        return self._fill(messages, context).removeprefix(self._leading_bos) + prefill

    def user_marker(self) -> str:
        """What begins each message of the user, for the places where a prompt may be gone back to; empty if that cannot be told."""
        return user_marker(lambda messages: self._fill([dict(message) for message in messages], {"add_generation_prompt": False}))

    def _fill(self, messages: Sequence[dict[str, Any]], context: dict[str, Any]) -> str:
        if self._wants_parts:
            messages = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]
        try:
            return self._template.render({"tools": None, "documents": None, **context, **self._tokens, "messages": list(messages)})
        except TemplateRefusal as refusal:
            raise InvalidRequest(f"the chat template refuses this conversation: {refusal}", "messages") from refusal
        except (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidRequest(f"the chat template cannot render this conversation: {error}", "messages") from error

    def _shows_only_parts(self) -> bool:
        """Some templates read `content` only as a list of parts, and drop a string in silence."""
        message = {"role": "user", "content": PROBE}
        self._wants_parts = False
        if self._shows(message):
            return False
        self._wants_parts = True
        return self._shows(message)

    def _shows(self, message: dict[str, Any]) -> bool:
        try:
            return PROBE in self._fill([message], {"add_generation_prompt": True})
        except InvalidRequest:
            return False


def _compiled(source: str, clock: Callable[[], datetime]) -> Template:
    try:
        return make_environment(clock).from_string(source)
    except TemplateSyntaxError as error:
        raise ModelFileError(f"the chat template is broken in line {error.lineno}: {error.message}; {REMEDY}") from error
    except (MemoryError, OverflowError, RecursionError, SyntaxError) as error:  # of the Python code that Jinja makes of it
        raise ModelFileError(f"the chat template is nested too deeply; {REMEDY}") from error
