"""The clients of the soak are awake: each kind of fault becomes the violation that it is, and a kill is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.soak import clients
from tests.soak.book import ERROR, STRANDED, WRONG, Book
from tests.soak.clients import CUT_OFF, ask_streamed, check, difference, with_patience
from tests.soak.node import Node, Question, ask

QUESTION = Question((1, 2), 4)
EVENT = b'data: {"choices": [{"text": " w1"}]}\n\n'


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], object]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def saying(body: bytes, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class FakeNode(Node):
    """A node whose server is somewhere else."""

    def __init__(self, url: str) -> None:
        super().__init__("fake", Path("none"), Path("none"), Path("none"))
        self._url = url
        self.serving.set()

    @property
    def url(self) -> str:
        return self._url


def violations(node: Node, once: Callable[[httpx.Client], object]) -> list[str]:
    book = Book()
    with_patience(node, book, threading.Event(), once)
    return [kind for kind, _ in book.violations]


def test_a_server_that_is_gone_without_a_kill_is_an_error() -> None:
    with answering(saying(b"")) as url:
        pass
    assert violations(FakeNode(url), lambda client: ask_streamed(client, QUESTION)) == [ERROR]


def test_a_server_that_was_killed_meanwhile_is_none() -> None:
    """Real soak: errors other than those of killed servers."""
    with answering(saying(b"")) as url:
        pass
    node, book, end = FakeNode(url), Book(), threading.Event()

    def once(client: httpx.Client) -> None:
        node.life += 1
        node.serving.clear()
        end.set()
        ask(client, QUESTION)

    with_patience(node, book, end, once)
    assert book.violations == [] and book.counts[CUT_OFF] == 1


@pytest.mark.parametrize(
    "body",
    [EVENT * 4, EVENT + b'data: {"error": {"message": "no"}}\n\n'],
    ids=["no end", "an error event"],
)
def test_a_stream_that_does_not_end_well_is_an_error(body: bytes) -> None:
    with answering(saying(body)) as url:
        assert violations(FakeNode(url), lambda client: ask_streamed(client, QUESTION)) == [ERROR]


def test_a_refusal_is_an_error() -> None:
    with answering(saying(b"busy", 503)) as url:
        assert violations(FakeNode(url), lambda client: ask(client, QUESTION)) == [ERROR]


def test_no_answer_is_stranded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PATIENCE_S", 0.05)
    answered = threading.Event()
    with answering(lambda handler: answered.wait(10)) as url:
        assert violations(FakeNode(url), lambda client: ask(client, QUESTION)) == [STRANDED]
        answered.set()


def test_a_stream_is_compared_like_a_whole_answer() -> None:
    with answering(saying(EVENT * 2 + b"data: [DONE]\n\n")) as url, httpx.Client(base_url=url) as client:
        assert ask_streamed(client, QUESTION) == " w1 w1"


def test_one_wrong_token_is_seen() -> None:
    """Real soak: token for token."""
    node, book = FakeNode(""), Book()
    node.answers[QUESTION] = " w1 w2"
    check(node, QUESTION, " w1 w2", book)
    assert book.violations == [] and not book.over.is_set()
    check(node, QUESTION, " w1 w3", book)
    ((kind, story),) = book.violations
    assert kind == WRONG and "from token 1 of 2 on: ['w3'], undisturbed ['w2']" in story
    assert book.over.is_set()


def test_an_answer_that_is_too_short_is_told_as_such() -> None:
    assert difference(["w1"], ["w1", "w2"]) == "from token 1 of 2 on: [], undisturbed ['w2']"
