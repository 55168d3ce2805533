"""kill -9 at the worst moments: whoever is left is served, and a dead waiter moves nobody.  Design 3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from .conftest import Start
from .servers import Server, text

pytestmark = pytest.mark.slow

TAKE_OVER_S = 1.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def wait_in_line(server: Server, threads: ThreadPoolExecutor) -> Future[dict[str, Any]]:
    """A request to `server`, which waits for the token."""
    answer = threads.submit(server.ask, "Say hello.")
    server.until_state("token", "waiting", "taking")
    return answer


def kill_and_see_the_other_served(victim: Server, other: Server, answer: Future[dict[str, Any]]) -> None:
    victim.kill()
    start_s = time.monotonic()
    other.until_state("token", "waking", "awake")
    assert time.monotonic() - start_s < TAKE_OVER_S
    assert text(answer.result(60))


def test_holder_killed_in_the_middle_of_a_generation(start: Start, threads: ThreadPoolExecutor) -> None:
    a, b = start("smollm2", "--quantum-ms", "0"), start("gemma3")
    with pytest.raises(httpx.RemoteProtocolError), a.generate_for_long() as stream:
        answer = wait_in_line(b, threads)
        kill_and_see_the_other_served(a, b, answer)
        list(stream.lines)


def test_holder_killed_in_the_middle_of_a_restore(start: Start, threads: ThreadPoolExecutor) -> None:
    a, b = start("smollm2"), start("gemma3")
    a.until_state("token", "asleep")
    lost = threads.submit(a.ask, "Say hello.")
    a.until_state("residency", "entering")
    answer = wait_in_line(b, threads)
    kill_and_see_the_other_served(a, b, answer)
    with pytest.raises(httpx.HTTPError):
        lost.result(60)


def test_holder_killed_in_the_middle_of_a_load(start: Start, threads: ThreadPoolExecutor) -> None:
    b = start("smollm2")
    a = start("gemma3", wait=False)
    a.until_state("load", "loading")
    answer = wait_in_line(b, threads)
    kill_and_see_the_other_served(a, b, answer)


def test_a_waiter_that_is_killed_causes_no_release(start: Start, threads: ThreadPoolExecutor) -> None:
    """S1 (ii): the holder's next look sees nobody and keeps the device."""
    a, b = start("smollm2", "--quantum-ms", "0"), start("gemma3")
    with a.generate_for_long(tokens=100) as stream:
        handoffs = a.state()["counters"]["handoffs"]
        lost = wait_in_line(b, threads)
        b.kill()
        with pytest.raises(httpx.HTTPError):
            lost.result(60)
        assert list(stream.lines)[-2] == "data: [DONE]"
    assert a.state()["counters"]["handoffs"] == handoffs
    assert a.machine("residency") == "resident"


def test_a_killed_server_comes_back_to_the_same_arena(start: Start) -> None:
    """Nothing of a dead process stays behind: no token, no place in the line, no file that is in the way."""
    a, b = start("smollm2"), start("gemma3")
    b.kill()
    assert text(a.ask("Say hello."))
    again = start("gemma3")
    assert text(again.ask("Say hello."))
    assert text(a.ask("Say hello."))
