"""Those who ask a node: whole answers, streamed answers, and some who leave in the middle of one."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator

import httpx

from tests.soak.book import ERROR, STRANDED, WRONG, Book
from tests.soak.node import PATIENCE_S, Node, Question, ask

LEAVE_CHANCE, STREAM_CHANCE, REST_CHANCE, REST_S = 0.1, 0.4, 0.1, 0.1
CUT_OFF = "requests cut off by a kill"


class BrokenOff(AssertionError):
    """A stream that ended before it was complete."""


def keep_asking(node: Node, book: Book, rng: random.Random, end: threading.Event) -> None:
    """One request at a time, until `end` or the first violation.  After a kill: again when the node serves again."""
    questions = list(node.answers)

    def once(client: httpx.Client) -> None:
        question = rng.choice(questions)
        if rng.random() < REST_CHANCE:
            end.wait(rng.uniform(0, REST_S))
        if rng.random() < LEAVE_CHANCE:
            leave_in_the_middle(client, question, rng.randint(1, 5), book)
        else:
            start_s = time.monotonic()
            answer = ask_streamed(client, question) if rng.random() < STREAM_CHANCE else ask(client, question)
            book.took(time.monotonic() - start_s)
            check(node, question, answer, book)

    with_patience(node, book, end, once)


def keep_commanding(node: Node, book: Book, rng: random.Random, end: threading.Event) -> None:
    """Sleep and wake by name, at any moment."""

    def once(client: httpx.Client) -> None:
        end.wait(rng.expovariate(1.0))
        verb = rng.choice(("sleep", "wake"))
        response = client.post(f"/lsm/{verb}", json={"model": node.alias})
        assert response.status_code == 200, f"{verb}: {response.status_code}: {response.text}"
        book.count("sleep and wake calls")

    with_patience(node, book, end, once)


def with_patience(node: Node, book: Book, end: threading.Event, once: Callable[[httpx.Client], object]) -> None:
    """`once` again and again.  What fails is a violation, unless the server was killed meanwhile."""
    while not end.is_set() and not book.over.is_set():
        if not node.serving.wait(0.05):
            continue
        life = node.life
        try:
            with httpx.Client(base_url=node.url, timeout=PATIENCE_S) as client:
                while not end.is_set() and not book.over.is_set() and node.serving.is_set():
                    once(client)
        except (httpx.TransportError, BrokenOff, AssertionError) as error:
            is_late = isinstance(error, httpx.TimeoutException)
            if node.life != life or (node.is_doomed and not is_late):
                book.count(CUT_OFF)
            elif is_late:
                book.violation(STRANDED, f"{node.alias}: no answer within {PATIENCE_S:.0f} s")
            else:
                book.violation(ERROR, f"{node.alias}: {type(error).__name__}: {error}")


def check(node: Node, question: Question, answer: str, book: Book) -> None:
    book.count("answers compared")
    undisturbed = node.answers[question]
    if answer != undisturbed:
        book.violation(WRONG, f"{node.alias}: {difference(answer.split(), undisturbed.split())}; the prompt was {question.prompt}")


def difference(words: list[str], undisturbed: list[str]) -> str:
    shorter = min(len(words), len(undisturbed))
    at = next((i for i in range(shorter) if words[i] != undisturbed[i]), shorter)
    return f"from token {at} of {len(undisturbed)} on: {words[at : at + 4]}, undisturbed {undisturbed[at : at + 4]}"


def ask_streamed(client: httpx.Client, question: Question) -> str:
    with client.stream("POST", "/v1/completions", json=question.body(stream=True)) as response:
        assert response.status_code == 200, f"{response.status_code}: {response.read()!r}"
        return "".join(_texts(response))


def leave_in_the_middle(client: httpx.Client, question: Question, n_events: int, book: Book) -> None:
    """Closes the connection after some events, or at the end if there are fewer."""
    with client.stream("POST", "/v1/completions", json=question.body(stream=True)) as response:
        assert response.status_code == 200, f"{response.status_code}: {response.read()!r}"
        for count, _ in enumerate(_texts(response), 1):
            if count == n_events:
                book.count("disconnects in the middle of an answer")
                return


def _texts(response: httpx.Response) -> Iterator[str]:
    for line in response.iter_lines():
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            yield event["choices"][0].get("text") or ""
    raise BrokenOff("the stream ended without [DONE]")
