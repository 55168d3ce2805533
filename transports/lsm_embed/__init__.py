"""The in-process door: `open` for any program, `open_async` for programs on trio.  Numpy arrays out, errors of `lsm.errors`."""

import logging

from lsm_embed.answer import Answer
from lsm_embed.async_models import AsyncModel, AsyncModels, AsyncStream, open_async, serve
from lsm_embed.blocking import Model, Models, Stream, open

__all__ = ["Answer", "AsyncModel", "AsyncModels", "AsyncStream", "Model", "Models", "Stream", "open", "open_async", "serve"]

logging.getLogger("lsm").addHandler(logging.NullHandler())  # a library writes on stderr only if its program has asked for a log
