"""Members of a request that llama-server knows and this server does not yet.

One that would change the answer is refused by name: silence would be a wrong answer.  One that changes nothing is let pass.
"""

from __future__ import annotations

from lsm.errors import InvalidRequest, NotSupported
from lsm_http.bodies import Chat, Generation

REASONING_FORMATS_AS_IS = (None, "none", "auto")


def refuse_unsupported(body: Generation) -> None:
    """Raises `NotSupported` (501) or, where the request contradicts itself, `InvalidRequest`."""
    _check_counts(body)
    for name, is_used in _generation_uses(body).items():
        _refuse(name, is_used)
    if isinstance(body, Chat):
        for name, is_used in _chat_uses(body).items():
            _refuse(name, is_used)


def _check_counts(body: Generation) -> None:
    best_of, n = body.best_of, body.n_cmpl or body.n or 1
    if best_of is not None and best_of < n:
        raise InvalidRequest(f"Value must be at least {n}, the number of answers", "best_of")
    if best_of is not None and best_of > n:
        raise NotSupported("Field 'best_of': this server does not choose among answers; ask for all of them with 'n'")


def _generation_uses(body: Generation) -> dict[str, bool]:
    """Field, and whether the request uses it."""
    return {
        "echo": bool(body.echo),
        "suffix": bool(body.suffix),
        "n_indent": (body.n_indent or 0) > 0,
    }


def _chat_uses(body: Chat) -> dict[str, bool]:
    return {
        "tools": bool(body.tools) and body.tool_choice != "none",
        "reasoning_format": body.reasoning_format not in REASONING_FORMATS_AS_IS,
        "reasoning_budget_tokens": body.reasoning_budget_tokens not in (None, -1),
        "thinking_budget_tokens": body.thinking_budget_tokens not in (None, -1),
        "reasoning_control": bool(body.reasoning_control),
    }


def _refuse(name: str, is_used: bool) -> None:
    if is_used:
        raise NotSupported(f"Field '{name}': this server does not support it yet; leave it out")
