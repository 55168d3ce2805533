"""Events of a generation as OpenAI's clients read them.  Pure: values in, JSON values out."""

from __future__ import annotations

import secrets
from collections import Counter
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


def usage(finishes: Sequence[Finish]) -> dict[str, Any]:
    """Of all choices together; they have one prompt."""
    n_prompt, n_completion = finishes[0].prompt_tokens, sum(finish.completion_tokens for finish in finishes)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_completion,
        "total_tokens": n_prompt + n_completion,
        "prompt_tokens_details": {"cached_tokens": finishes[0].timings.cache_n},
    }


def timings(of: Timings) -> dict[str, float]:
    """Rates are 0 where nothing was measured; guesses are told of where there were some."""
    guesses = {"draft_n": of.draft_n, "draft_n_accepted": of.draft_n_accepted} if of.draft_n else {}
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
        **guesses,
    }


Choice = tuple[Sequence[Text], Finish]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a stream says when its last choice has ended; `finishes` in the order of the choices."""

    finishes: Sequence[Finish]
    include_usage: bool


class Format(Protocol):
    """How the choices of one answer are written down."""

    @property
    def end(self) -> bytes:
        """What a stream is closed with."""
        ...

    def whole(self, choices: Sequence[Choice]) -> Any: ...

    def opening(self, index: int) -> list[dict[str, Any]]:
        """Before the first text of a choice."""
        ...

    def blank(self) -> dict[str, Any]:
        """A chunk without text, to tell something in."""
        ...

    def text(self, text: Text) -> dict[str, Any]: ...

    def closing(self, finish: Finish, summary: Summary | None) -> list[dict[str, Any]]:
        """A choice has ended; with `summary` the last one."""
        ...


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """`POST /v1/chat/completions`."""

    heading: Heading
    end: bytes = DONE

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        finishes = [finish for _, finish in choices]
        head = self._head("chat.completion", [self._choice(texts, finish) for texts, finish in choices])
        return {**head, "usage": usage(finishes), "timings": timings(finishes[0].timings)}

    def _choice(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(text.text for text in texts)}
        logprobs = chat_logprobs([probs for text in texts for probs in text.probs])
        return {"index": finish.index, "message": message, "finish_reason": finish_reason(finish), "logprobs": logprobs}

    def opening(self, index: int) -> list[dict[str, Any]]:
        return [self._chunk(index, {"role": "assistant", "content": None})]

    def blank(self) -> dict[str, Any]:
        return self._chunk(0, {"role": "assistant", "content": None})

    def text(self, text: Text) -> dict[str, Any]:
        chunk = self._chunk(text.index, {"content": text.text})
        if text.probs:
            chunk["choices"][0]["logprobs"] = chat_logprobs(text.probs)
        return chunk

    def closing(self, finish: Finish, summary: Summary | None) -> list[dict[str, Any]]:
        chunk = self._chunk(finish.index, {}, finish_reason(finish))
        return _with_summary(chunk, self._head("chat.completion.chunk", []), summary)

    def _chunk(self, index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return self._head("chat.completion.chunk", [{"index": index, "delta": delta, "finish_reason": reason}])

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return _head(self.heading, f"chatcmpl-{self.heading.id}", kind, choices)


@dataclass(slots=True)
class CompletionFormat:
    """`POST /v1/completions`."""

    heading: Heading
    end: bytes = DONE
    n_characters: Counter[int] = field(default_factory=Counter)  # of each choice, so far

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        finishes = [finish for _, finish in choices]
        head = self._head([self._whole_choice(texts, finish) for texts, finish in choices])
        return {**head, "usage": usage(finishes), "timings": timings(finishes[0].timings)}

    def _whole_choice(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        logprobs = completion_logprobs([probs for text in texts for probs in text.probs], 0)
        return _completion_choice(finish.index, "".join(text.text for text in texts), finish_reason(finish), logprobs)

    def opening(self, index: int) -> list[dict[str, Any]]:
        return []

    def blank(self) -> dict[str, Any]:
        return self._head([_completion_choice(0, "")])

    def text(self, text: Text) -> dict[str, Any]:
        logprobs = completion_logprobs(text.probs, self.n_characters[text.index])
        self.n_characters[text.index] += len(text.text)
        return self._head([_completion_choice(text.index, text.text, logprobs=logprobs)])

    def closing(self, finish: Finish, summary: Summary | None) -> list[dict[str, Any]]:
        return _with_summary(self._head([_completion_choice(finish.index, "", finish_reason(finish))]), self._head([]), summary)

    def _head(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return _head(self.heading, f"cmpl-{self.heading.id}", "text_completion", choices)


def _completion_choice(index: int, text: str, reason: str | None = None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason}


def _with_summary(chunk: dict[str, Any], empty: dict[str, Any], summary: Summary | None) -> list[dict[str, Any]]:
    """`timings` is on the very last chunk."""
    if summary is None:
        return [chunk]
    chunks = [chunk, {**empty, "usage": usage(summary.finishes)}] if summary.include_usage else [chunk]
    chunks[-1]["timings"] = timings(summary.finishes[0].timings)
    return chunks


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
