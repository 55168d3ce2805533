"""What every route needs: the host, the settings, and the reading of bodies."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TypeVar

import msgspec
import trio
from starlette.requests import Request

from lsm.api import Host, ModelFacts, ModelInfo, Options
from lsm.config import Settings
from lsm.errors import ModelFailed, ModelLoading
from lsm_http.bodies import Generation, parse
from lsm_http.openai_format import Heading
from lsm_http.options import make_options
from lsm_http.unsupported import refuse_unsupported

Body = TypeVar("Body", bound=msgspec.Struct)
Result = TypeVar("Result")

LONG_BODY_BYTES = 16_384  # what is in a larger body may take seconds to tokenize
MAX_THREADS = 2  # long texts wait for each other, not everything else for them


def _version() -> str:
    try:
        return metadata.version("lsm-server")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "0+checkout"


@dataclass(frozen=True, slots=True)
class Context:
    host: Host
    settings: Settings
    started_s: int = field(default_factory=lambda: int(time.time()))
    build: str = field(default_factory=lambda: f"lsm-{_version()}")
    threads: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(MAX_THREADS))

    def loaded(self, model: str | None) -> tuple[ModelInfo, ModelFacts]:
        """Raises `NotFound`, or `ModelLoading` or `ModelFailed` where nothing is known of the model yet."""
        info = self.host.model(model or "")
        if info.facts is not None:
            return info, info.facts
        if info.load_state == "failed":
            raise ModelFailed(f"model '{info.alias}' could not be loaded: {info.why}; POST /lsm/wake tries again")
        raise ModelLoading()

    def options(self, body: Generation, model: ModelInfo, facts: ModelFacts) -> Options:
        """Raises `InvalidRequest` or `NotSupported` naming the field."""
        refuse_unsupported(body)
        tokenize = partial(self.host.tokenize, model.alias, parse_special=False)
        return make_options(body, self.settings.options_for(facts.sampling), tokenize, facts.n_vocab)

    async def work(self, request: Request, what: Callable[[], Result]) -> Result:
        """`what()`, on a thread where the request is large, so that everybody else is answered meanwhile."""
        if len(await request.body()) <= LONG_BODY_BYTES:
            return what()
        return await trio.to_thread.run_sync(what, limiter=self.threads)

    def heading(self, model: ModelInfo) -> Heading:
        return Heading(model.alias, int(time.time()), self.build)


async def read(request: Request, kind: type[Body]) -> Body:
    """Raises `InvalidRequest`, or `HttpError` if the body is too large or too slow."""
    return parse(await request.body(), kind)
