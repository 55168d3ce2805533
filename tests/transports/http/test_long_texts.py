"""Work that grows with the body never holds up those who only ask how the server is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
import trio

from lsm.values import ChatRequest
from tests.transports.http.served import served
from tests.transports.scripted_host import ScriptedHost

LONG = "x" * 100_000
LONG_REQUESTS = [
    ("/tokenize", {"content": LONG}),
    ("/tokenize", {"content": [LONG, 5, LONG]}),
    ("/tokenize", {"content": LONG, "with_pieces": True}),
    ("/detokenize", {"tokens": [120] * 100_000}),
    ("/apply-template", {"messages": [{"role": "user", "content": LONG}]}),
    ("/v1/completions", {"prompt": [LONG, 5]}),
    ("/v1/completions", {"prompt": "x", "logit_bias": {LONG: 1.0}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "logit_bias": {LONG: 1.0}}),
]


class SlowHost(ScriptedHost):
    """Its vocabulary works on for as long as a test wants."""

    may_go_on: threading.Event
    began: threading.Event

    def _work(self) -> None:
        self.began.set()
        assert self.may_go_on.wait(10), "the server cannot answer anything else"

    def tokenize(self, model: str, text: str, **options: bool) -> tuple[int, ...]:
        self._work()
        return super().tokenize(model, text, **options)

    def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        if len(tokens) > 1_000:
            self._work()
        return super().detokenize(model, tokens)

    def render(self, model: str, chat: ChatRequest) -> str:
        self._work()
        return super().render(model, chat)


@pytest.mark.parametrize(("path", "body"), LONG_REQUESTS)
async def test_a_long_text_does_not_hold_up_the_others(path: str, body: dict[str, Any]) -> None:
    """P15: /health answers while 3 MB of text are tokenized, which takes seconds."""
    SlowHost.may_go_on, SlowHost.began = threading.Event(), threading.Event()
    answers: list[httpx.Response] = []

    async def ask(client: httpx.AsyncClient) -> None:
        answers.append(await client.post(path, json=body))

    async with served(host_class=SlowHost) as server, server.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(ask, client)
        await trio.to_thread.run_sync(SlowHost.began.wait)
        assert (await client.get("/health")).status_code == 200
        assert not answers
        SlowHost.may_go_on.set()
    assert answers[0].status_code < 500


async def test_a_short_text_needs_no_thread() -> None:
    """A thread costs more than the few microseconds of a usual text."""
    threads: list[threading.Thread] = []

    class Watched(ScriptedHost):
        def tokenize(self, model: str, text: str, **options: bool) -> tuple[int, ...]:
            threads.append(threading.current_thread())
            return super().tokenize(model, text, **options)

    async with served(host_class=Watched) as server, server.client() as client:
        await client.post("/tokenize", json={"content": "x"})
    assert threads == [threading.current_thread()]
