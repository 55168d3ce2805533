"""The requests that both servers get, as data.  Add one here, and it is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STORY = "Once upon a time there was a lock that nobody could open. The"
REPEATS = "one two three. one two three. one two three. one two"
CODE = "def fibonacci(n):\n    "
CHAT = [{"role": "user", "content": "Name three colours."}]
GRAMMAR = 'root ::= "The answer is " ("yes" | "no") "." "\\n" [a-z ]{3,20}'
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One request.  `compare`: what of the two answers must be equal.

    "answer": tokens, end, counts; "probabilities": also how likely they were; "whole": everything; "slot": the counts of a slot's file;
    "validity": nothing, but each must be JSON, for the servers' grammars differ.
    """

    name: str
    body: Any
    path: str = "/completion"
    compare: str = "answer"

    def __str__(self) -> str:
        return self.name


GREEDY: Mapping[str, Any] = {"temperature": 0}
HOT: Mapping[str, Any] = {"temperature": 1.2, "seed": 42}
ALONE: Mapping[str, Mapping[str, Any]] = {
    "top_k": {"samplers": ["top_k"], "top_k": 8},
    "top_p": {"samplers": ["top_p"], "top_p": 0.7},
    "min_p": {"samplers": ["min_p"], "min_p": 0.1},
    "typical_p": {"samplers": ["typ_p"], "typical_p": 0.6},
    "top_n_sigma": {"samplers": ["top_n_sigma"], "top_n_sigma": 1.0},
    "xtc": {"samplers": ["xtc"], "xtc_probability": 0.8, "xtc_threshold": 0.1},
    "temperature": {"samplers": ["temperature"], "temperature": 0.5},
    "dynatemp": {"samplers": ["temperature"], "temperature": 0.8, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5},
    "penalties": {"samplers": ["penalties"], "repeat_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.3, "repeat_last_n": 32},
    "dry": {"samplers": ["dry"], "dry_multiplier": 0.8, "dry_allowed_length": 1},
    "adaptive_p": {"samplers": ["top_k", "adaptive_p"], "adaptive_target": 0.3, "adaptive_decay": 0.8},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 4.0, "mirostat_eta": 0.2},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 4.0, "mirostat_eta": 0.2},
    "order": {"samplers": ["temperature", "min_p", "top_k"], "top_k": 12},
    "letters": {"samplers": "kpt", "top_p": 0.8},
    "min_keep": {"samplers": ["top_p"], "top_p": 0.05, "min_keep": 4},
}
GREEDILY: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "repeat_penalty": {"repeat_penalty": 1.2},
    "frequency and presence": {"frequency_penalty": 0.5, "presence_penalty": 0.5},
    "dry": {"dry_multiplier": 1.0, "dry_base": 1.5, "dry_allowed_length": 2},
    "dry breakers": {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_sequence_breakers": [".", "two"]},
    "bias by id": {"logit_bias": [[260, 5.0], [28, False]]},
    "bias by text": {"logit_bias": [[" the", -3.0], [".", False]]},
    "bias as an object": {"logit_bias": {" the": -3.0, "28": False}},
    "ignore_eos": {"ignore_eos": True, "n_predict": 60},
    "stop": {"stop": [" the", "\n\n"]},
    "stop in the middle of a token": {"stop": ["oo"]},
    "grammar": {"grammar": GRAMMAR},
    "lazy grammar": {
        "grammar": 'root ::= " was" " x"{1,3}', "grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": " was"}],
        "preserved_tokens": [" was"],
    },
    "backend sampling": {"backend_sampling": True},
    "temperature below 0": {"temperature": -1.0},
}  # fmt: skip
TOLD: Mapping[str, Mapping[str, Any]] = {
    "n_probs": {"n_probs": 5},
    "n_probs with penalties": {"n_probs": 3, "repeat_penalty": 1.5},
    "n_probs with a grammar": {"n_probs": 3, "grammar": GRAMMAR},
    "post_sampling_probs": {"n_probs": 8, "post_sampling_probs": True, "temperature": 1.0, "seed": 3},
    "post_sampling_probs, greedy": {"n_probs": 4, "post_sampling_probs": True},
    "post_sampling_probs with mirostat": {"n_probs": 4, "post_sampling_probs": True, "mirostat": 2, "temperature": 1.0, "seed": 3},
}


def _native(name: str, options: Mapping[str, Any], prompt: str = STORY, compare: str = "answer", n: int = 32) -> Case:
    return Case(name, {"prompt": prompt, "n_predict": n, "cache_prompt": False, **options}, compare=compare)


TOGETHER: Mapping[str, Any] = {
    "repeat_penalty": 1.1, "dry_multiplier": 0.5, "top_n_sigma": 2.0, "top_k": 30, "typical_p": 0.9, "top_p": 0.95, "min_p": 0.02,
    "xtc_probability": 0.3, "dynatemp_range": 0.2, "logit_bias": [[260, -1.0]],
}  # fmt: skip
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
PERSON = "A person as JSON: "
LIST = [{"role": "user", "content": "Answer with {\"colour\": \"red\"}"}]
OBJECT: Mapping[str, Any] = {"response_format": {"type": "json_object"}, "max_tokens": 200}

CASES: tuple[Case, ...] = (
    *(_native(f"greedy: {name}", GREEDY | options, REPEATS if "dry" in name else STORY) for name, options in GREEDILY.items()),
    *(_native(f"alone: {name}", HOT | options, REPEATS if name in ("dry", "penalties") else STORY) for name, options in ALONE.items()),
    *(_native(f"defaults: {seed}", {"seed": seed}, CODE) for seed in (0, 1, 7, 2**32 - 2)),
    _native("together", HOT | TOGETHER),
    _native("seeded grammar", HOT | {"grammar": GRAMMAR}),
    *(_native(f"told: {name}", GREEDY | options, compare="probabilities", n=8) for name, options in TOLD.items()),
    _native("schema: greedy", GREEDY | {"json_schema": SCHEMA}, PERSON, "validity", 200),
    _native("schema: seeded", HOT | {"json_schema": SCHEMA}, PERSON, "validity", 200),
    Case("chat: greedy", GREEDY | {"messages": CHAT, "max_tokens": 24}, CHATS),
    Case("chat: logprobs", GREEDY | {"messages": CHAT, "max_tokens": 6, "logprobs": True, "top_logprobs": 4}, CHATS, "probabilities"),
    Case("chat: json_object", GREEDY | OBJECT | {"messages": LIST}, CHATS, "validity"),
    Case("completion: logprobs", GREEDY | {"prompt": STORY, "max_tokens": 6, "logprobs": 4}, COMPLETIONS, "probabilities"),
    Case("completion: n_probs", {"prompt": STORY, "max_tokens": 4, "n_probs": 2, "seed": 5}, COMPLETIONS, "probabilities"),
)
