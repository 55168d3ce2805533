"""GET /: one page that shows who has the device and why.  Plain files, no build step, nothing from elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lsm_http.context import Context

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/index.html": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in ("page.js", "servers.js", "talk.js", "view.js")},
}
METRICS_LINK = b' <a href="metrics">/metrics</a>'  # shown only where the route answers
# Nothing but this server's own files runs; other servers may be asked for their state.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src *; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    media_type: str
    etag: str


def make_routes(context: Context) -> list[Route]:
    if not context.settings.ui:
        return []
    hidden = b"" if context.settings.metrics else METRICS_LINK
    assets = {path: _load(name, media_type, hidden) for path, (name, media_type) in FILES.items()}
    peers = urlencode([("peer", url) for url in context.settings.page_peers])

    async def asset(request: Request) -> Response:
        if peers and request.scope["path"] == "/" and not request.url.query:
            return RedirectResponse(f"?{peers}", status_code=307)  # the address says what the page shows
        return _answer(assets[request.scope["path"]], request.headers.get("if-none-match", ""))

    return [Route(path, asset) for path in FILES]


def _load(name: str, media_type: str, hidden: bytes) -> Asset:
    content = resources.files("lsm_http").joinpath("page", name).read_bytes().replace(hidden, b"")
    return Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _answer(asset: Asset, if_none_match: str) -> Response:
    """Always revalidated: a browser must not keep the page of an older server."""
    headers = {"ETag": asset.etag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    if _matches(asset.etag, if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


def _matches(etag: str, if_none_match: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags
