"""Two real servers, SmolLM2 and Gemma 3, one arena, exclusive policy."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from .conftest import Start
from .observer import Observer, rss_bytes
from .servers import Server, text

pytestmark = pytest.mark.slow

QUESTIONS = [f"Say the number {n} in words." for n in range(30)]


def settle(awake: Server, asleep: Server) -> None:
    awake.ask("Hello")
    asleep.until_state("token", "asleep")


def ask_anew(server: Server, question: str) -> str:
    """Without the cache: how a prompt is divided into batches changes rounding, so only like may be compared with like."""
    return text(server.ask(question, cache_prompt=False))


def answers(server: Server) -> list[str]:
    return [ask_anew(server, question) for question in QUESTIONS]


def test_sixty_alternating_requests(start: Start, arena: Path) -> None:
    """S4, S10, design 3.1: 0 stranded, 0 errors, never two resident, each answer equal to that of an undisturbed server."""
    a = start("smollm2")
    undisturbed = answers(a)
    cold = {a.pid: 0}
    b = start("gemma3")  # loading it puts a to sleep
    a.until_state("token", "asleep")
    cold[a.pid], warm_b = rss_bytes(a.pid), rss_bytes(b.pid)
    undisturbed_b = answers(b)
    settle(a, b)
    cold[b.pid], warm_a = rss_bytes(b.pid), rss_bytes(a.pid)
    thresholds = {a.pid: (cold[a.pid] + warm_a) // 2, b.pid: (cold[b.pid] + warm_b) // 2}
    with Observer(arena, thresholds) as observer:
        for question, answer_a, answer_b in zip(QUESTIONS, undisturbed, undisturbed_b, strict=True):
            assert ask_anew(a, question) == answer_a
            assert ask_anew(b, question) == answer_b
    assert observer.double_resident == []
    assert observer.resident_without_token == []
    assert observer.samples > 1000 and all(observer.resident_seen.values()), "the witness saw nothing"
    for server in (a, b):
        assert server.state()["counters"]["wakes"] >= 30
        assert server.state()["counters"]["refusals"] == 0


@pytest.mark.parametrize("flags", [(), ("--sleep-evict-kv",)], ids=["kv stays", "kv leaves"])
def test_a_conversation_is_never_processed_again(start: Start, flags: tuple[str, ...]) -> None:
    """S9: after every handoff `timings.prompt_n` counts only the new tokens, on a conversation of 700 tokens."""
    servers = [start(name, *flags) for name in ("smollm2", "gemma3")]
    story = " ".join(f"Fact {n}: the tower number {n} is {n * 7 % 50} metres high." for n in range(40))
    talks = [[{"role": "user", "content": story + " Which tower is the highest?"}] for _ in servers]
    totals = [0, 0]
    for turn in range(4):
        for index, (server, talk) in enumerate(zip(servers, talks, strict=True)):
            answer = server.converse(talk, max_tokens=12)
            timings, usage = answer["timings"], answer["usage"]
            if turn:
                new = usage["prompt_tokens"] - totals[index]
                assert timings["prompt_n"] <= new + 1, (server.alias, turn, timings, new)
                assert timings["cache_n"] >= totals[index] - 1
            else:
                assert usage["prompt_tokens"] >= 700
            totals[index] = usage["prompt_tokens"] + usage["completion_tokens"]
            talk += [{"role": "assistant", "content": text(answer)}, {"role": "user", "content": "And the next one?"}]
    for server in servers:
        assert server.state()["counters"]["wakes"] >= 4


@pytest.mark.parametrize("flags", [(), ("--sleep-evict-kv",)], ids=["kv stays", "kv leaves"])
def test_memory_of_the_releasing_process_falls(start: Start, flags: tuple[str, ...]) -> None:
    """S10: by at least 90 % of the weight bytes; S9: and of the KV bytes with --sleep-evict-kv."""
    server = start("gemma3", *flags)
    server.ask("One thing after another, all of them true. " * 150)
    model = server.state()["models"][0]
    sizes = {name: model["bytes"][name]["device"] for name in ("weights", "kv")}
    before = rss_bytes(server.pid)
    assert server.post("/lsm/sleep", {"model": "gemma3"}).status_code == 200
    fell = before - rss_bytes(server.pid)
    after = server.state()["models"][0]["bytes"]
    expected = sizes["weights"] + after["kv"]["file"]  # the used pages of the cache, now in a file
    assert fell >= 0.9 * expected, f"fell by {fell} of {expected}"
    assert after["kv"]["file"] >= (0.5 * sizes["kv"] if flags else 0)
    assert after["weights"]["device"] == 0
    assert after["kv"]["device"] == (0 if flags else sizes["kv"])


def test_a_load_waits_for_the_token_then_serves_without_a_restore(start: Start) -> None:
    """S7 with real processes: B loads while A is warm; A has left before; B's first request finds it awake."""
    a = start("smollm2")
    b = start("gemma3")
    assert a.machine("residency") == "away"
    wakes = b.state()["counters"]["wakes"]
    b.ask("Hello")
    assert b.state()["counters"]["wakes"] == wakes == 1


def test_a_server_asleep_by_contention_wakes_with_idle_sleep_off(start: Start) -> None:
    """S8 with real processes; -1, no idle sleep, is the default."""
    a = start("smollm2")
    start("gemma3")
    a.until_state("sleep", "asleep")
    assert text(a.ask("Hello"))


def test_cheap_routes_answer_while_the_server_waits_for_the_token(start: Start) -> None:
    """S1 fault (f), P15, design 3.6: under 50 ms each, and nothing is changed by looking."""
    a, b = start("smollm2", "--metrics"), start("gemma3", "--quantum-ms", "0")
    with ThreadPoolExecutor() as threads:
        with b.generate_for_long():
            answer = threads.submit(a.ask, "Hello")
            a.until_state("token", "waiting")
            before = states(a)
            for route in ("/health", "/props", "/metrics", "/v1/models", "/lsm/state"):
                assert min(seconds(a, route) for _ in range(5)) < 0.05, route
            assert states(a) == before
            assert not answer.done()
        assert text(answer.result(60))


def states(server: Server) -> dict[str, str]:
    return {name: machine["state"] for name, machine in server.state()["models"][0]["machines"].items()}


def seconds(server: Server, route: str) -> float:
    start = time.perf_counter()
    assert server.get(route).status_code == 200, route
    return time.perf_counter() - start


def test_three_servers_are_served_in_order_and_within_the_quantum(start: Start) -> None:
    """Design 3.3, 3.4: a generation without end starves nobody, and goes on afterwards; first come, first served."""
    a, b, c = start("smollm2", "--quantum-ms", "500"), start("gemma3"), start("smollm2")
    served: list[Server] = []

    def ask(server: Server) -> None:
        server.ask("Hello", max_tokens=1)
        served.append(server)

    with ThreadPoolExecutor() as threads, a.generate_for_long() as stream:
        answers = []
        for server in (b, c):
            answers.append(threads.submit(ask, server))
            server.until(partial(_in_line, server))
        for answer in answers:
            answer.result(60)
        assert served == [b, c]
        assert next(line for line in stream.lines if line)


def _in_line(server: Server) -> bool:
    return server.machine("token") not in ("asleep", "doorway", "joining")
