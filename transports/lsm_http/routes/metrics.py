"""GET /metrics, for Prometheus.  Rates are averages since the scrape before."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lsm.api import Counters
from lsm.errors import NotSupported
from lsm_http.context import Context
from lsm_http.metrics_text import exposition


def make_routes(context: Context) -> list[Route]:
    scraped: dict[str, Counters] = {}

    async def metrics(request: Request) -> Response:
        if not context.settings.metrics:
            raise NotSupported("This server does not support metrics endpoint. Start it with `--metrics`")
        now = {info.alias: context.host.counters(info.alias) for info in context.host.models()}
        text = exposition(now, scraped, context.host.state())
        scraped.update(now)
        return Response(text, headers={"Process-Start-Time-Unix": str(context.started_s)}, media_type="text/plain; version=0.0.4")

    return [Route("/metrics", metrics)]
