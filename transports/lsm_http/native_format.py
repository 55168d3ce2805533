"""Events of a generation in llama-server's own form.  Pure: values in, JSON values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lsm.api import Finish, Text, TokenProbs
from lsm_http.logprobs import entries
from lsm_http.openai_format import timings


@dataclass(slots=True)
class NativeFormat:
    """`POST /completion`, `/infill`.  `settings`: what the answer is made with, by the names of a request."""

    model: str
    prompt: str
    settings: dict[str, Any]
    with_tokens: bool = False  # in a whole answer; events have theirs anyway
    end: bytes = b""
    n_predicted: int = 0
    has_new_line: bool = False

    def whole(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        content = "".join(text.text for text in texts)
        self.has_new_line = "\n" in content
        tokens = [token for text in texts for token in text.tokens] if self.with_tokens else []
        return {**self._last(content, finish), "tokens": tokens, **_probabilities([probs for text in texts for probs in text.probs])}

    def opening(self) -> list[dict[str, Any]]:
        return []

    def text(self, text: Text) -> dict[str, Any]:
        self.n_predicted += len(text.tokens)
        self.has_new_line = self.has_new_line or "\n" in text.text
        chunk = {"index": 0, "content": text.text, "tokens": list(text.tokens), "stop": False, "tokens_predicted": self.n_predicted}
        return {**chunk, **_probabilities(text.probs)}

    def closing(self, finish: Finish, include_usage: bool) -> list[dict[str, Any]]:
        return [self._last("", finish)]

    def _last(self, content: str, finish: Finish) -> dict[str, Any]:
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": finish.id_slot,
            "stop": True,
            "model": self.model,
            "tokens_predicted": finish.completion_tokens,
            "tokens_evaluated": finish.prompt_tokens,
            "generation_settings": self.settings if finish.seed is None else {**self.settings, "seed": finish.seed},
            "prompt": self.prompt,
            "has_new_line": self.has_new_line,
            "truncated": finish.truncated,
            "stop_type": finish.stop_type,
            "stopping_word": finish.stopping_word,
            "tokens_cached": finish.prompt_tokens + max(finish.completion_tokens - 1, 0),  # the last one is never decoded
            "timings": timings(finish.timings),
        }


def _probabilities(probs: Sequence[TokenProbs]) -> dict[str, Any]:
    return {"completion_probabilities": entries(probs)} if probs else {}
