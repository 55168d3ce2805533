from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from lsm.chat import ChatTemplate
from lsm.errors import InvalidRequest, ModelFileError
from lsm.values import ChatRequest

DATA = Path(__file__).parent / "templates"
SMOLLM2 = (DATA / "smollm2.jinja").read_text(encoding="utf-8")


def chat(*turns: tuple[str, object], **options: object) -> ChatRequest:
    return ChatRequest(messages=tuple({"role": role, "content": content} for role, content in turns), **options)  # type: ignore[arg-type]


def smollm2() -> ChatTemplate:
    return ChatTemplate(SMOLLM2, "<|im_start|>", "<|im_end|>", adds_bos=False)


def gemma() -> ChatTemplate:
    return ChatTemplate("", "<bos>", "<eos>", architecture="gemma3")


def test_smollm2_gets_its_default_system_message() -> None:
    """B.4: the model's own template decides, word for word."""
    assert smollm2().render(chat(("user", "Hi"))) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_smollm2_conversation_with_system_message() -> None:
    """B.4: roles and order are kept."""
    prompt = smollm2().render(chat(("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello."), ("user", "Bye")))
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


def test_without_generation_prompt_the_assistant_is_not_opened() -> None:
    """B.4: add_generation_prompt false."""
    assert smollm2().render(chat(("user", "Hi"), add_generation_prompt=False)).endswith("<|im_start|>user\nHi<|im_end|>\n")


def test_gemma_without_template_is_asked_in_its_own_form() -> None:
    """B.4: the demo's Gemma file has no template, and ChatML would be nonsense to it."""
    prompt = gemma().render(chat(("system", "Be brief."), ("user", " Hi "), ("assistant", "Hello."), ("user", "Bye")))
    assert prompt == (
        "<start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert gemma().origin == "built-in template 'gemma'"


def test_unknown_architecture_without_template_gets_chatml() -> None:
    """B.4: as llama-server does."""
    template = ChatTemplate("", "<s>", "</s>", architecture="llama")
    assert template.render(chat(("user", "Hi"))) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert template.origin == "built-in template 'chatml'"


def test_a_built_in_template_can_be_named() -> None:
    """C.7: --chat-template NAME."""
    assert ChatTemplate("gemma", "<bos>", "<eos>", architecture="llama").render(chat(("user", "Hi"))).startswith("<start_of_turn>user")


@pytest.mark.parametrize(("adds_bos", "expected"), [(True, "Hi"), (False, "<s>Hi")])
def test_bos_is_never_there_twice(adds_bos: bool, expected: str) -> None:
    """B.4: the tokenizer adds BOS, so the template's own must go; where it does not, it must stay."""
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", "<s>", "</s>", adds_bos=adds_bos)
    assert template.render(chat(("user", "Hi"))) == expected


def test_only_one_bos_is_taken_away() -> None:
    """B.4: a user may write BOS too; that one is the user's."""
    assert ChatTemplate("{{ bos_token }}{{ messages[0].content }}", "<s>", "</s>").render(chat(("user", "<s>Hi"))) == "<s>Hi"


def test_parts_are_joined_by_newlines() -> None:
    """B.4: content as a list of text parts."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "<|im_start|>user\none\ntwo<|im_end|>" in smollm2().render(chat(("user", parts)))


def test_template_that_reads_only_parts_gets_parts() -> None:
    """B.4: a template that looks for parts must not drop the text in silence."""
    source = "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}{% endfor %}{% endfor %}"
    assert ChatTemplate(source, "", "").render(chat(("user", "Hi"))) == "[Hi]"


def test_last_assistant_message_is_continued() -> None:
    """S20: the turn of the assistant stays open."""
    assert smollm2().render(chat(("user", "Hi"), ("assistant", "Hel"))).endswith("<|im_start|>assistant\nHel")


def test_refusal_of_the_template_reaches_the_client() -> None:
    """B.4: raise_exception's words are the message."""
    with pytest.raises(InvalidRequest, match="refuses this conversation: Conversation roles must alternate"):
        gemma().render(chat(("user", "a"), ("user", "b")))


def test_template_error_is_the_clients_not_the_servers() -> None:
    """B.4: whatever a foreign template stumbles over ends in 400."""
    template = ChatTemplate("{% if messages|length > 1 %}{{ 1 // 0 }}{% endif %}{{ messages[0].content }}", "", "")
    with pytest.raises(InvalidRequest, match="cannot render"):
        template.render(chat(("user", "a"), ("user", "b")))


def test_broken_template_says_where_and_what_to_do() -> None:
    """C.7: a model file with a broken template."""
    with pytest.raises(ModelFileError, match=r"line 2: .*--chat-template"):
        ChatTemplate("fine\n{% if %}", "", "")


@pytest.mark.parametrize(
    "source",
    ["{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}", "{% for a in b %}" * 30 + "{% endfor %}" * 30, "{{ " + "-" * 100_000 + "1 }}"],
)
def test_a_template_that_exhausts_the_compiler_is_broken(source: str) -> None:
    """C.7: recursion in Jinja, blocks within blocks in the Python code that it makes."""
    with pytest.raises(ModelFileError, match=r"nested too deeply.*--chat-template"):
        ChatTemplate(source, "", "")


def test_template_can_reach_nothing() -> None:
    """Design 1: a template is foreign code and stays in its sandbox."""
    template = ChatTemplate("{{ messages[0].content }}{{ ''.__class__.__mro__ if messages|length > 1 }}", "", "")
    with pytest.raises(InvalidRequest, match="unsafe"):
        template.render(chat(("user", "a"), ("user", "b")))


def test_template_cannot_change_the_request() -> None:
    """Design 1: values are frozen, also for templates."""
    template = ChatTemplate("{{ messages.append(1) if messages|length > 1 }}{{ messages[0].content }}", "", "")
    with pytest.raises(InvalidRequest, match="unsafe|not safely callable"):
        template.render(chat(("user", "a"), ("user", "b")))


def test_extras_of_hugging_face() -> None:
    """B.4: strftime_now, tojson without HTML escapes, break, the generation tag."""
    source = (
        "{{ strftime_now('%Y-%m-%d') }} {{ {'a': '<é>'} | tojson }}"
        "{% generation %} g{% endgeneration %}{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    )
    template = ChatTemplate(source, "", "", clock=lambda: datetime(2026, 1, 2))
    assert template.render(chat(("user", "Hi"))) == '2026-01-02 {"a": "<é>"} g01'


def test_keyword_arguments_reach_the_template_but_cannot_replace_the_conversation() -> None:
    """C.7: chat_template_kwargs."""
    template = ChatTemplate("{{ messages[0].content }} {{ enable_thinking }}", "", "")
    request = chat(("user", "Hi"), template_kwargs={"enable_thinking": False, "messages": [{"content": "other"}], "bos_token": "x"})
    assert template.render(request) == "Hi False"
