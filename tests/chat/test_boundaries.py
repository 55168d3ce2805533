"""What begins a message of the user (S11: message boundaries come from the chat template)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.chat import ChatTemplate
from lsm.chat.builtin import CHATML

SMOLLM2 = (Path(__file__).parent / "templates" / "smollm2.jinja").read_text(encoding="utf-8")
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MARKERS = {
    CHATML: "<|im_start|>user",
    SMOLLM2: "<|im_start|>user",
    "gemma": "<start_of_turn>user",
    LLAMA2: "[INST]",
    HEADERS: "<|start_header_id|>user<|end_header_id|>",
}


@pytest.mark.parametrize(("source", "marker"), MARKERS.items(), ids=["chatml", "smollm2", "gemma", "llama2", "headers"])
def test_the_marker_is_what_stands_before_each_message_of_the_user(source: str, marker: str) -> None:
    """S11: delimiters of the chat template, found by rendering."""
    assert ChatTemplate(source, "<s>", "</s>").user_marker() == marker


def test_a_template_that_shows_no_roles_has_none() -> None:
    """S11: then no snapshot is taken for a message."""
    assert ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", "", "").user_marker() == ""


def test_a_template_that_refuses_a_conversation_has_none() -> None:
    """S11: no error for what is only a convenience."""
    refusing = "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}{{ messages[0].content }}"
    assert ChatTemplate(refusing, "", "").user_marker() == ""
