"""Headers that let pages of other origins call this server.

Every origin is let in, as with llama-server: the origin is echoed, because browsers refuse `*` together with credentials.  What keeps
strangers out is the API key; the server warns at start when there is none.
"""

from __future__ import annotations

from starlette.datastructures import Headers

ALLOW_METHODS = "GET, POST, DELETE, OPTIONS"


def cors_headers(request: Headers) -> dict[str, str]:
    """For every response."""
    origin = request.get("origin")
    if origin is None:
        return {}
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true", "Vary": "Origin"}


def preflight_headers(request: Headers) -> dict[str, str]:
    """For OPTIONS.  `*` never covers Authorization, so what the browser asks for is named back to it."""
    asked_for = request.get("access-control-request-headers", "*")
    return {"Access-Control-Allow-Methods": ALLOW_METHODS, "Access-Control-Allow-Headers": asked_for}
