"""Counters as Prometheus reads them.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lsm.api import Counters

Value = float | int

COUNTERS: tuple[tuple[str, str, Callable[[Counters], Value]], ...] = (
    ("prompt_tokens_total", "Prompt tokens decoded.", lambda now: now.prompt_tokens),
    ("prompt_tokens_cached_total", "Prompt tokens found in the cache.", lambda now: now.prompt_tokens_cached),
    ("prompt_seconds_total", "Time spent on prompts.", lambda now: now.prompt_seconds),
    ("tokens_predicted_total", "Tokens generated.", lambda now: now.predicted_tokens),
    ("tokens_predicted_seconds_total", "Time spent on generating.", lambda now: now.predicted_seconds),
    ("n_decode_total", "Calls of llama_decode.", lambda now: now.decode_calls),
    ("n_tokens_max", "Most tokens seen in one slot.", lambda now: now.tokens_max),
    ("spec_decode_num_draft_tokens_total", "Tokens that were guessed and verified.", lambda now: now.draft_tokens),
    ("spec_decode_num_accepted_tokens_total", "Of these, tokens that were right.", lambda now: now.draft_tokens_accepted),
    ("spec_decode_num_drafts_total", "Drafts that were verified.", lambda now: now.drafts),
)
GAUGES: tuple[tuple[str, str, Callable[[Counters, Counters], Value]], ...] = (
    (
        "prompt_tokens_seconds",
        "Prompt tokens a second, since the last scrape.",
        lambda now, before: _rate(now.prompt_tokens - before.prompt_tokens, now.prompt_seconds - before.prompt_seconds),
    ),
    (
        "predicted_tokens_seconds",
        "Tokens generated a second, since the last scrape.",
        lambda now, before: _rate(now.predicted_tokens - before.predicted_tokens, now.predicted_seconds - before.predicted_seconds),
    ),
    ("requests_processing", "Requests in a slot.", lambda now, before: now.requests_processing),
    ("requests_deferred", "Requests that wait for a slot or for the device.", lambda now, before: now.requests_waiting),
    ("n_busy_slots_per_decode", "Slots in use per llama_decode.", lambda now, before: _rate(now.busy_slots, now.decode_calls)),
)
KEPT: tuple[tuple[str, str, str, Callable[[Counters], Value]], ...] = (
    ("prompt_cache_hits_total", "counter", "Prompts taken back from host memory.", lambda now: now.prompt_cache_hits),
    ("prompt_cache_entries", "gauge", "Prompts in host memory.", lambda now: now.prompt_cache_entries),
    ("prompt_cache_tokens", "gauge", "Their tokens.", lambda now: now.prompt_cache_tokens),
    ("prompt_cache_bytes", "gauge", "Their bytes, snapshots included.", lambda now: now.prompt_cache_bytes),
    ("checkpoints", "gauge", "Snapshots of slots and of prompts in host memory.", lambda now: now.checkpoints),
    ("checkpoint_bytes", "gauge", "Their bytes.", lambda now: now.checkpoint_bytes),
)


def exposition(now: Mapping[str, Counters], before: Mapping[str, Counters], state: Mapping[str, Any]) -> str:
    """`now` and `before` by alias.  Series are labelled by model only where there are several, as llama-server's have no labels."""
    label = _model_label if len(now) > 1 else _no_label
    lines: list[str] = []
    for name, meaning, read in COUNTERS:
        lines += _family(f"llamacpp:{name}", "counter", meaning, {label(alias): read(counts) for alias, counts in now.items()})
    lines += _positions(now)
    for name, meaning, compare in GAUGES:
        values = {label(alias): compare(counts, before.get(alias, Counters())) for alias, counts in now.items()}
        lines += _family(f"llamacpp:{name}", "gauge", meaning, values)
    for name, value in state["counters"].items():
        lines += _family(f"lsm:{name}_total", "counter", f"Of all models of this process: {name}.", {"": value})
    for name, kind, meaning, read in KEPT:
        lines += _family(f"lsm:{name}", kind, meaning, {label(alias): read(counts) for alias, counts in now.items()})
    lines += _family("lsm:memory_bytes", "gauge", "What each model has where.", _memory(state))
    return "\n".join(lines) + "\n"


def _positions(now: Mapping[str, Counters]) -> list[str]:
    """Of right guesses, by their place in the draft; nothing before the first draft."""
    values = {
        _labels(**({"model": alias} if len(now) > 1 else {}), position=str(position)): n
        for alias, counts in now.items()
        for position, n in enumerate(counts.accepted_per_position)
    }
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    return _family(name, "counter", "Right guesses by their place in the draft.", values) if values else []


def _memory(state: Mapping[str, Any]) -> dict[str, Value]:
    return {
        _labels(model=model["alias"], kind=kind, place=place): size_bytes
        for model in state["models"]
        for kind, places in model["bytes"].items()
        for place, size_bytes in places.items()
    }


def _family(name: str, kind: str, meaning: str, values: Mapping[str, Value]) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *(f"{name}{labels} {value:.12g}" for labels, value in values.items())]


def _no_label(alias: str) -> str:
    return ""


def _model_label(alias: str) -> str:
    return _labels(model=alias)


def _labels(**labels: str) -> str:
    quoted = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(quoted) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0
