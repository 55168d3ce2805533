"""Members of a request that llama-server knows and this server does not yet.

One that would change the answer is refused by name: silence would be a wrong answer.  One that changes nothing is let pass.
"""

from __future__ import annotations

from typing import Any

from lsm.errors import InvalidRequest, NotSupported
from lsm_http.bodies import Chat, Generation

REASONING_FORMATS_AS_IS = (None, "none", "auto")


def refuse_unsupported(body: Generation) -> None:
    """Raises `NotSupported` (501) or, where the request contradicts itself, `InvalidRequest`."""
    if body.json_schema is not None and body.grammar:
        raise InvalidRequest("Cannot use both json_schema and grammar", "json_schema")
    _check_counts(body)
    for name, is_used in _generation_uses(body).items():
        _refuse(name, is_used)
    if isinstance(body, Chat):
        for name, is_used in _chat_uses(body).items():
            _refuse(name, is_used)


def _check_counts(body: Generation) -> None:
    for name in ("n", "n_cmpl", "best_of"):
        value = getattr(body, name)
        if value is not None and value < 1:
            raise InvalidRequest("Value must be at least 1", name)
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequest("top_logprobs requires logprobs to be set to true", "top_logprobs")


def _generation_uses(body: Generation) -> dict[str, bool]:
    """Field, and whether the request uses it."""
    return {
        "n": (body.n or 1) > 1,
        "n_cmpl": (body.n_cmpl or 1) > 1,
        "best_of": (body.best_of or 1) > 1,
        "n_probs": (body.n_probs or 0) > 0,
        # 0 asks OpenAI for the log-probability of the chosen token alone; with llama-server it is "off".
        "logprobs": body.logprobs is True or (body.logprobs or 0) > 0,
        "echo": bool(body.echo),
        "suffix": bool(body.suffix),
        "json_schema": body.json_schema is not None,
        "response_format": _is_formatted(body.response_format),
        "grammar_lazy": bool(body.grammar_lazy),
        "adaptive_target": body.adaptive_target is not None and body.adaptive_target >= 0.0,
        "n_indent": (body.n_indent or 0) > 0,
        "lora": bool(body.lora),
        "timings_per_token": bool(body.timings_per_token),
        "return_progress": bool(body.return_progress),
    }


def _chat_uses(body: Chat) -> dict[str, bool]:
    return {
        "tools": bool(body.tools) and body.tool_choice != "none",
        "reasoning_format": body.reasoning_format not in REASONING_FORMATS_AS_IS,
        "reasoning_budget_tokens": body.reasoning_budget_tokens not in (None, -1),
        "thinking_budget_tokens": body.thinking_budget_tokens not in (None, -1),
        "reasoning_control": bool(body.reasoning_control),
    }


def _is_formatted(response_format: Any) -> bool:
    if response_format is None:
        return False
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise InvalidRequest('must be an object whose "type" is "text", "json_object" or "json_schema"', "response_format")
    return bool(kind != "text")


def _refuse(name: str, is_used: bool) -> None:
    if is_used:
        raise NotSupported(f"Field '{name}': this server does not support it yet; leave it out")
