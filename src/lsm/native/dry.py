"""DRY samplers: llama.cpp compares every breaker with every token, a second for a large vocabulary; so each kind is made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsm.native.library import ffi, lib
from lsm.native.vocab import Vocab

__all__ = ["is_known", "new_dry"]

DEFAULTS: Mapping[str, Any] = {"multiplier": 0.0, "base": 1.75, "allowed_length": 2, "last_n": 64, "breakers": ("\n", ":", '"', "*")}
MAX_KINDS = 16  # of one vocabulary that are kept


def new_dry(vocab: Vocab, params: Mapping[str, Any]) -> Any:
    """A sampler of llama.cpp, the caller's to free.  From any thread; slow where `is_known` says no."""
    key, kinds = _key(params), vocab.dry_samplers
    kind = kinds.get(key)
    if kind is None:
        kind = kinds[key] = ffi.gc(_make(vocab, dict(key)), lib.llama_sampler_free)
        for oldest in list(kinds)[:-MAX_KINDS]:
            kinds.pop(oldest, None)
    return lib.llama_sampler_clone(kind)


def is_known(vocab: Vocab, params: Mapping[str, Any]) -> bool:
    """Whether such a sampler is a copy of one that was made before."""
    return _key(params) in vocab.dry_samplers


def _key(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, params.get(name, default)) for name, default in DEFAULTS.items())


def _make(vocab: Vocab, params: Mapping[str, Any]) -> Any:
    texts = [ffi.new("char[]", text.encode()) for text in params["breakers"]]
    breakers = ffi.new("const char *[]", texts) if texts else ffi.NULL
    return lib.llama_sampler_init_dry(
        vocab.handle,
        float(params["multiplier"]),
        float(params["base"]),
        int(params["allowed_length"]),
        int(params["last_n"]),
        breakers,
        len(texts),
    )
