"""Events of a generation in llama-server's own form.  Pure: values in, JSON values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from lsm.api import Finish, Text, TokenProbs
from lsm_http.logprobs import entries
from lsm_http.openai_format import Choice, Summary, timings

MISSING = object()


@dataclass(slots=True)
class NativeFormat:
    """`POST /completion`, `/infill`.  `settings`: what the answer is made with, by the names of a request."""

    model: str
    prompt: str
    settings: dict[str, Any]
    with_tokens: bool = False  # in a whole answer; events have theirs anyway
    fields: Sequence[str] = ()  # what the end of an answer tells, such as "timings/prompt_n"; none: everything
    end: bytes = b""
    n_predicted: Counter[int] = field(default_factory=Counter)  # of each choice, so far
    with_new_line: set[int] = field(default_factory=set)  # choices

    def whole(self, choices: Sequence[Choice]) -> Any:
        """One object, or a list of them where several answers were asked for."""
        written = [self._whole_choice(texts, finish) for texts, finish in choices]
        return written[0] if len(written) == 1 else written

    def _whole_choice(self, texts: Sequence[Text], finish: Finish) -> dict[str, Any]:
        content = "".join(text.text for text in texts)
        self._note_new_line(finish.index, content)
        tokens = [token for text in texts for token in text.tokens] if self.with_tokens else []
        probs = _probabilities([probs for text in texts for probs in text.probs])
        return self._asked_for({**self._last(content, finish), "tokens": tokens, **probs})

    def opening(self, index: int) -> list[dict[str, Any]]:
        return []

    def blank(self) -> dict[str, Any]:
        return self._chunk(0, "", ())

    def text(self, text: Text) -> dict[str, Any]:
        self._note_new_line(text.index, text.text)
        return {**self._chunk(text.index, text.text, text.tokens), **_probabilities(text.probs)}

    def closing(self, finish: Finish, summary: Summary | None) -> list[dict[str, Any]]:
        return [self._asked_for(self._last("", finish))]

    def _asked_for(self, answer: dict[str, Any]) -> dict[str, Any]:
        return dict(_chosen(self.fields, answer)) if self.fields else answer

    def _note_new_line(self, index: int, text: str) -> None:
        if "\n" in text:
            self.with_new_line.add(index)

    def _chunk(self, index: int, text: str, tokens: Sequence[int]) -> dict[str, Any]:
        self.n_predicted[index] += len(tokens)
        return {"index": index, "content": text, "tokens": list(tokens), "stop": False, "tokens_predicted": self.n_predicted[index]}

    def _last(self, content: str, finish: Finish) -> dict[str, Any]:
        return {
            "index": finish.index,
            "content": content,
            "tokens": [],
            "id_slot": finish.id_slot,
            "stop": True,
            "model": self.model,
            "tokens_predicted": finish.completion_tokens,
            "tokens_evaluated": finish.prompt_tokens,
            "generation_settings": self.settings if finish.seed is None else {**self.settings, "seed": finish.seed},
            "prompt": self.prompt,
            "has_new_line": finish.index in self.with_new_line,
            "truncated": finish.truncated,
            "stop_type": finish.stop_type,
            "stopping_word": finish.stopping_word,
            "tokens_cached": finish.prompt_tokens + max(finish.completion_tokens - 1, 0),  # the last one is never decoded
            "timings": timings(finish.timings),
        }


def _probabilities(probs: Sequence[TokenProbs]) -> dict[str, Any]:
    return {"completion_probabilities": entries(probs)} if probs else {}


def _chosen(paths: Sequence[str], answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each path of names divided by slashes, whole, and what is there; one that leads nowhere is left out."""
    for path in paths:
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
        if value is not MISSING:
            yield path, value
