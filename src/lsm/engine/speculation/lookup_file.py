"""The files of `ngram-cache`, as llama.cpp's lookup tools write them: n-grams, and the counts of the tokens that followed them."""

from __future__ import annotations

import struct
from pathlib import Path

from lsm.engine.speculation.ngram_cache import SIZES, Cache
from lsm.errors import ConfigError

_N_MAX = max(SIZES)
_HEAD = struct.Struct(f"<{_N_MAX + 1}i")  # the tokens, -1 where there are fewer, and how many counts follow
_PAIR = struct.Struct("<2i")
NO_TOKEN = -1


def read_lookup(path: Path, flag: str) -> Cache:
    """Raises `ConfigError`, which names the flag: the file cannot be read, or is not of this kind."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}") from None
    cache: Cache = {}
    start = 0
    try:
        while start < len(data):
            *tokens, n = _HEAD.unpack_from(data, start)
            start += _HEAD.size
            stop = start + n * _PAIR.size
            if n <= 0 or stop > len(data):
                raise ValueError
            pairs = dict(_PAIR.iter_unpack(data[start:stop]))
            if min(pairs.values()) <= 0:
                raise ValueError
            cache[tuple(token for token in tokens if token != NO_TOKEN)] = pairs
            start = stop
    except (struct.error, ValueError):
        raise ConfigError(f"{flag} {path}: is not a lookup cache, or is cut off at byte {start}: make it again") from None
    return cache
