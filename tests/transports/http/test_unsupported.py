from __future__ import annotations

import json
from typing import Any

import pytest
from lsm_http.bodies import Chat, parse
from lsm_http.unsupported import refuse_unsupported

from lsm.errors import InvalidRequest, NotSupported


def check(body: dict[str, Any]) -> None:
    refuse_unsupported(parse(json.dumps(body).encode(), Chat))


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "body",
    [
        {"best_of": 2}, {"echo": True}, {"suffix": "x"}, {"n_indent": 2},
        {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "required"},
        {"reasoning_format": "deepseek"}, {"reasoning_budget_tokens": 5}, {"thinking_budget_tokens": 0}, {"reasoning_control": True},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_would_change_the_answer_is_refused_by_name(body: dict[str, Any]) -> None:
    """D.5 (7): silence would be a wrong answer."""
    with pytest.raises(NotSupported, match=f"^Field '{next(iter(body))}': "):
        check(body)


@pytest.mark.parametrize(
    "body",
    [
        {"n": 1}, {"n": 2}, {"n_cmpl": 2, "best_of": 2}, {"echo": False}, {"timings_per_token": True}, {"return_progress": True},
        {"tools": []}, {"tools": [TOOL], "tool_choice": "none"}, {"tool_choice": "auto"}, {"reasoning_format": "auto"},
        {"lora": []}, {"thinking_budget_tokens": -1}, {"user": "me", "store": True, "metadata": {}},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_changes_nothing_passes(body: dict[str, Any]) -> None:
    """B.2: unknown members, and known ones at rest, are no reason to refuse."""
    check(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"best_of": 0}, "at least 1"),
        ({"best_of": 2, "n": 3}, "at least 3"),
    ],
)
def test_contradictions_are_bad_requests(body: dict[str, Any], message: str) -> None:
    """B.4: 400."""
    with pytest.raises(InvalidRequest, match=message):
        check(body)
