"""One soak from beginning to end: learn, disturb, let things settle, look at the trace."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx

from lsm.verify import Limits, TraceError, read_traces, tell, verify
from tests.e2e.servers import PROGRAM
from tests.soak.book import ERROR, STRANDED, TRACE, Book
from tests.soak.clients import check, keep_asking, keep_commanding
from tests.soak.handoffs import Handoffs, durations_ms, states_at_death, token_edges
from tests.soak.models import WEIGHT_BYTES, write_mixture
from tests.soak.nemesis import (
    FREEZE_EVERY,
    KILL_EVERY,
    OUTSIDER_EVERY,
    STRANGER_EVERY,
    Freezer,
    Killer,
    Outsider,
    Stranger,
    keep_disturbing,
)
from tests.soak.node import LENGTHS, MIN_HOLD_MS, QUANTUM_MS, Node, ask, make_questions
from tests.soak.report import Report
from tests.soak.witness import Witness

# One leaves by itself when nobody asks, one gives its KV cache away with its weights, one is as it comes.
KINDS_OF_NODES = (("--sleep-idle-seconds", "0.03"), ("--sleep-evict-kv",), ())
N_QUESTIONS = 2 * len(LENGTHS)


def soak(folder: Path, servers: int, handoffs: int, seconds: float, seed: int, program: Sequence[str] = PROGRAM) -> Report:
    """`servers` take turns until the device has changed hands `handoffs` times, or for so many seconds, or until something is wrong.

    Everything is below `folder`, which must exist.  `program`: what Python runs as server.
    """
    trace = folder / "trace.ndjson"
    trace.touch()
    book = Book()
    with ExitStack() as exits:
        nodes = [_node(folder, n, trace, program) for n in range(servers)]
        questions = make_questions(random.Random(f"{seed}/questions"), N_QUESTIONS)
        for node in nodes:
            node.start()
            exits.callback(_stop, node, book)
            node.wait_until_it_serves()
            node.learn(questions)
        witness = exits.enter_context(Witness(folder / "arena", book.violation))
        for node in nodes:
            node.witness = witness
            witness.watch(node.pid, node.threshold_bytes)
        start_ns = time.monotonic_ns()
        killed, count = _disturb(folder, nodes, book, trace, handoffs, seconds, seed)
        took_s = (time.monotonic_ns() - start_ns) / 1e9
        _settle(nodes, book)
        if not all(witness.seen.intersection(node.pids) for node in nodes):
            book.violation(ERROR, "the witness did not see every server in device memory: it is blind")
    edges = token_edges(trace)
    deaths = states_at_death(edges, killed)
    return Report(
        seed=seed,
        servers=servers,
        seconds=took_s,
        handoffs=count,
        counts=book.counts,
        deaths=Counter(deaths.values()),
        looks=witness.looks,
        trace=_verified(trace, book),
        durations_ms=durations_ms((edge for edge in edges if edge["t_ns"] >= start_ns), book.disturbed),
        slowest_s=book.slowest_s,
        violations=book.violations,
    )


def _node(folder: Path, n: int, trace: Path, program: Sequence[str]) -> Node:
    model = write_mixture(folder / f"model{n}.gguf", seed=n)
    return Node(f"model{n}", model, folder / "arena", trace, *KINDS_OF_NODES[n % len(KINDS_OF_NODES)], program=program)


def _stop(node: Node, book: Book) -> None:
    try:
        node.stop()
    except AssertionError as error:
        book.violation(ERROR, f"{node.alias}, at the end: {error}")


def _disturb(
    folder: Path, nodes: list[Node], book: Book, trace: Path, goal: int, seconds: float, seed: int
) -> tuple[list[int], int]:
    """The pids of the killed, and the handoffs that there were."""
    end = threading.Event()
    arena = folder / "arena"

    def rng(name: str) -> random.Random:
        return random.Random(f"{seed}/{name}")

    killer = Killer(nodes, book, rng("killer"), end)
    nemeses = (
        (killer, KILL_EVERY),
        (Freezer(nodes, book, rng("freezer"), end), FREEZE_EVERY),
        (Outsider(arena, book, rng("outsider"), end), OUTSIDER_EVERY),
        (Stranger(arena, book, rng("stranger"), end), STRANGER_EVERY),
    )
    with Handoffs(trace) as handoffs, ThreadPoolExecutor(2 * len(nodes) + len(nemeses)) as threads:

        def start(work: Callable[..., None], *args: object) -> Future[None]:
            future = threads.submit(work, *args)
            future.add_done_callback(lambda done: book.over.set() if done.exception() else None)
            return future

        futures = [start(keep_asking, node, book, rng(node.alias), end) for node in nodes]
        futures += [start(keep_commanding, node, book, rng(f"{node.alias}/commands"), end) for node in nodes]
        for nemesis, every in nemeses:
            futures.append(start(keep_disturbing, nemesis, every, handoffs, book, rng(type(nemesis).__name__), end))
        before = handoffs.count
        time_is_up = threading.Event()
        timer = threading.Timer(seconds, time_is_up.set)
        timer.start()
        try:
            handoffs.wait_for_more(goal, time_is_up, book.over)
        finally:
            timer.cancel()
            end.set()
        count = handoffs.count - before
        for future in futures:
            future.result()
    return killer.killed, count


def _settle(nodes: list[Node], book: Book) -> None:
    """After the last disturbance everybody is served, by turns, and nobody has kept memory that a sleeper should not have."""
    for question in list(nodes[0].answers)[: len(LENGTHS)]:
        for node in nodes:
            if book.over.is_set():
                return
            try:
                check(node, question, ask(node.server.client, question), book)
            except (httpx.HTTPError, AssertionError) as error:
                book.violation(STRANDED, f"{node.alias}, after the last disturbance: {error}")
    for node in nodes:
        try:
            grown = node.measure_cold() - node.cold_bytes
        except httpx.HTTPError as error:
            book.violation(STRANDED, f"{node.alias}, told to sleep: {error}")
            continue
        if grown > WEIGHT_BYTES / 4:
            book.violation(ERROR, f"{node.alias}: asleep, it has {grown} bytes more in memory than at first")


def _verified(trace: Path, book: Book) -> list[str]:
    """What each check of the trace looked at."""
    seen: list[str] = []
    try:
        records = read_traces([trace]).records
    except TraceError as error:
        book.violation(TRACE, str(error))
        return seen
    for verdict in verify(records, Limits(min_hold_ms=MIN_HOLD_MS, quantum_ms=QUANTUM_MS)):
        seen.append(f"{verdict.check}: {verdict.seen}")
        if verdict.story is not None:
            book.violation(TRACE, "\n    ".join((verdict.check, *tell(verdict.story))))
    return seen
