"""Events of a generation as OpenAI's clients read them.  Pure: values in, JSON values out."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lsm.api import Finish, Text, Timings
from lsm_http.logprobs import chat_logprobs, completion_logprobs
from lsm_http.sse import DONE


@dataclass(frozen=True, slots=True)
class Heading:
    """What all chunks of one answer have in common."""

    model: str
    created_s: int
    fingerprint: str
    id: str = field(default_factory=lambda: secrets.token_urlsafe(24))


def finish_reason(finish: Finish) -> str:
    return "length" if finish.stop_type == "limit" else "stop"


def usage(finish: Finish) -> dict[str, Any]:
    return {
        "prompt_tokens": finish.prompt_tokens,
        "completion_tokens": finish.completion_tokens,
        "total_tokens": finish.prompt_tokens + finish.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": finish.timings.cache_n},
    }


def timings(of: Timings) -> dict[str, float]:
    """Rates are 0 where nothing was measured."""
    return {
        "cache_n": of.cache_n,
        "prompt_n": of.prompt_n,
        "prompt_ms": of.prompt_ms,
        "prompt_per_token_ms": _ratio(of.prompt_ms, of.prompt_n),
        "prompt_per_second": _ratio(1e3 * of.prompt_n, of.prompt_ms),
        "predicted_n": of.predicted_n,
        "predicted_ms": of.predicted_ms,
        "predicted_per_token_ms": _ratio(of.predicted_ms, of.predicted_n),
        "predicted_per_second": _ratio(1e3 * of.predicted_n, of.predicted_ms),
    }


class Format(Protocol):
    """How one answer is written down."""

    @property
    def end(self) -> bytes:
        """What a stream is closed with."""
        ...

    def whole(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]: ...

    def opening(self) -> list[dict[str, Any]]: ...

    def text(self, text: Text) -> dict[str, Any]: ...

    def closing(self, finish: Finish, include_usage: bool) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """`POST /v1/chat/completions`."""

    heading: Heading
    end: bytes = DONE

    def whole(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(text.text for text in texts)}
        logprobs = chat_logprobs([probs for text in texts for probs in text.probs])
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(finish), "logprobs": logprobs}
        return {**self._head("chat.completion", [choice]), "usage": usage(finish), "timings": timings(finish.timings)}

    def opening(self) -> list[dict[str, Any]]:
        return [self._chunk({"role": "assistant", "content": None})]

    def text(self, text: Text) -> dict[str, Any]:
        chunk = self._chunk({"content": text.text})
        if text.probs:
            chunk["choices"][0]["logprobs"] = chat_logprobs(text.probs)
        return chunk

    def closing(self, finish: Finish, include_usage: bool) -> list[dict[str, Any]]:
        """`timings` is on the very last chunk."""
        chunks = [self._chunk({}, finish_reason(finish))]
        if include_usage:
            chunks.append({**self._head("chat.completion.chunk", []), "usage": usage(finish)})
        chunks[-1]["timings"] = timings(finish.timings)
        return chunks

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return self._head("chat.completion.chunk", [{"index": 0, "delta": delta, "finish_reason": reason}])

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return _head(self.heading, f"chatcmpl-{self.heading.id}", kind, choices)


@dataclass(slots=True)
class CompletionFormat:
    """`POST /v1/completions`."""

    heading: Heading
    end: bytes = DONE
    n_characters: int = 0  # of the answer, so far

    def whole(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        logprobs = completion_logprobs([probs for text in texts for probs in text.probs], 0)
        chunk = self._chunk("".join(text.text for text in texts), finish_reason(finish), logprobs)
        return {**chunk, "usage": usage(finish), "timings": timings(finish.timings)}

    def opening(self) -> list[dict[str, Any]]:
        return []

    def text(self, text: Text) -> dict[str, Any]:
        logprobs = completion_logprobs(text.probs, self.n_characters)
        self.n_characters += len(text.text)
        return self._chunk(text.text, logprobs=logprobs)

    def closing(self, finish: Finish, include_usage: bool) -> list[dict[str, Any]]:
        chunks = [self._chunk("", finish_reason(finish))]
        if include_usage:
            chunks.append({**self._head([]), "usage": usage(finish)})
        chunks[-1]["timings"] = timings(finish.timings)
        return chunks

    def _chunk(self, text: str, reason: str | None = None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._head([{"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}])

    def _head(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return _head(self.heading, f"cmpl-{self.heading.id}", "text_completion", choices)


def _head(heading: Heading, id: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": id,
        "object": kind,
        "created": heading.created_s,
        "model": heading.model,
        "system_fingerprint": heading.fingerprint,
        "choices": choices,
    }


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0
