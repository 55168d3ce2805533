"""What goes wrong, as clients read it: `{"error": {"code", "message", "type"}}` with the same HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from lsm.errors import ContextExceeded, LsmError, Unavailable


class HttpError(LsmError):
    """An error that only this door knows, such as a body that is too large."""

    def __init__(self, status: int, type: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.headers = dict(headers or {})


def unauthorized() -> HttpError:
    return HttpError(401, "authentication_error", "Invalid API Key")


def file_not_found() -> HttpError:
    return HttpError(404, "not_found_error", "File Not Found")


def body_too_large(limit_bytes: int) -> HttpError:
    return HttpError(413, "invalid_request_error", f"the body is larger than {limit_bytes // 2**20} MiB, the most that this server reads")


def body_too_slow(timeout_s: float) -> HttpError:
    return HttpError(408, "invalid_request_error", f"no part of the body came for {timeout_s:g} s")


def server_error() -> HttpError:
    return HttpError(500, "server_error", "the server made a mistake; its log says which")


def stopping() -> Unavailable:
    """What a request hears that the end of the server cuts off."""
    return Unavailable("The server is stopping")


def error_body(error: LsmError) -> dict[str, Any]:
    inner: dict[str, Any] = {"code": error.status, "message": error.message, "type": error.type}
    if isinstance(error, ContextExceeded):
        inner |= {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    return {"error": inner}


def error_response(error: LsmError) -> Response:
    return json_response(error_body(error), error.status, _headers(error))


def _headers(error: LsmError) -> dict[str, str]:
    if isinstance(error, Unavailable):
        return {"Retry-After": str(error.retry_after_s)}
    return error.headers if isinstance(error, HttpError) else {}


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json; charset=utf-8")
