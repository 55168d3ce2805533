"""API keys: `Authorization: Bearer KEY` (the word may be missing) or `X-Api-Key: KEY`."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers

from lsm_http.routes import page

PUBLIC_PATHS = frozenset({"/health", "/v1/health", *page.FILES})


def is_allowed(path: str, headers: Headers, keys: Sequence[str]) -> bool:
    """`path` is without the prefix.  Without keys everybody is allowed."""
    return not keys or path in PUBLIC_PATHS or _is_one_of(_key_in(headers), keys)


def _key_in(headers: Headers) -> str:
    return headers.get("authorization", "").removeprefix("Bearer ").strip() or headers.get("x-api-key", "").strip()


def _is_one_of(given: str, keys: Sequence[str]) -> bool:
    """Compares with every key, each in constant time, so that the time tells nothing about them."""
    matches = [hmac.compare_digest(given.encode(), key.encode()) for key in keys]
    return any(matches)
