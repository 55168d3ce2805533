"""A host that answers without end, for clients that do not keep up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import trio

from lsm.api import Finish, Options, Text
from tests.transports.scripted_host import ScriptedHost, ScriptedModel

PIECE = "x" * 4096


class FloodHost(ScriptedHost):
    """A prompt with `[flood]` is answered for ever."""

    async def _answer(self, it: ScriptedModel, prompt: tuple[int, ...], echo: str, options: Options) -> AsyncIterator[Text | Finish]:
        if "[flood]" not in echo:
            async for event in super()._answer(it, prompt, echo, options):
                yield event
            return
        while True:
            await trio.lowlevel.checkpoint()
            yield Text(PIECE, (1,))
