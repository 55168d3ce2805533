from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.chat.messages import normalized, without_prefill
from lsm.errors import InvalidRequest

WRONG: list[tuple[Any, str]] = [
    ([], r"^Field 'messages': must have at least one message"),
    (["hi"], r"^Field 'messages\[0\]': must be an object"),
    ([{"content": "hi"}], r"messages\[0\]\.role"),
    ([{"role": 1, "content": "hi"}], r"messages\[0\]\.role"),
    ([{"role": "user"}], "All non-assistant messages must contain 'content'"),
    ([{"role": "user", "content": None}], "All non-assistant messages must contain 'content'"),
    ([{"role": "assistant"}], "either 'content' or 'tool_calls'"),
    ([{"role": "user", "content": 1}], r"messages\[0\]\.content': must be a string or a list"),
    ([{"role": "user", "content": [1]}], r"content\[0\]': must be an object with 'type'"),
    ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\]\.text"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "'image_url' is not supported by this model"),
    ([{"role": "user", "content": [{"type": "hologram"}]}], "'hologram' is not supported by this model"),
]


@pytest.mark.parametrize(("messages", "message"), WRONG)
def test_wrong_messages_are_named(messages: Any, message: str) -> None:
    """B.4: 400, and the message says which member of which message."""
    with pytest.raises(InvalidRequest, match=message):
        normalized(messages)


def test_developer_is_the_system() -> None:
    """B.4: OpenAI's clients send the newer name."""
    assert normalized([{"role": "developer", "content": "x"}])[0]["role"] == "system"


def test_an_answer_of_tool_calls_alone_has_empty_content() -> None:
    """B.4: assistant needs content or tool_calls."""
    assert normalized([{"role": "assistant", "content": None, "tool_calls": [{}]}])[0]["content"] == ""


def test_the_callers_messages_are_left_alone() -> None:
    """Design 1: values in are not changed."""
    given_messages = [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]
    normalized(given_messages)
    assert given_messages == [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "2 or more assistant messages"),
        ([{"role": "assistant", "content": "a", "tool_calls": [{}]}], "contains tool calls"),
    ],
)
def test_what_cannot_be_continued(last: list[dict[str, Any]], message: str) -> None:
    """S20: the two refusals."""
    with pytest.raises(InvalidRequest, match=message):
        without_prefill([{"role": "user", "content": "hi"}, *last])


def test_a_conversation_of_the_user_has_no_prefill() -> None:
    """S20: nothing to continue."""
    messages = [{"role": "user", "content": "hi"}]
    assert without_prefill(messages) == (messages, "")


KEYS = st.sampled_from(["role", "content", "type", "text"]) | st.text(max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(json_values, max_size=3))
def test_any_json_is_accepted_or_refused_cleanly(messages: Any) -> None:
    """B.4: no JSON value ends in anything but a conversation of strings or InvalidRequest."""
    try:
        result = normalized(messages)
    except InvalidRequest:
        return
    assert all(isinstance(message["content"], str) and isinstance(message["role"], str) for message in result)
