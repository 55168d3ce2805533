"""What the soak reads out of a trace."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from tests.soak.handoffs import Counter, Handoffs, durations_ms, states_at_death, token_edges

MS = 1_000_000


def edge(t_ms: int, pid: int, event: str, source: str = "", target: str = "") -> dict[str, Any]:
    return {"t_ns": t_ms * MS, "pid": pid, "machine": "token", "from": source, "event": event, "to": target}


def won(t_ms: int, pid: int) -> dict[str, Any]:
    return edge(t_ms, pid, "token_won", "taking", "waking")


def handoff(t_ms: int, giver: int, taker: int, took_ms: int) -> list[dict[str, Any]]:
    return [edge(t_ms, giver, "look", "awake", "draining"), won(t_ms + 1, taker), edge(t_ms + took_ms, taker, "mapped", "waking", "awake")]


def test_a_handoff_is_a_turn_of_another_process() -> None:
    """The first turn of all is none, nor is another turn of the same process."""
    counter = Counter()
    for each in (won(1, 7), won(2, 8), won(3, 8), edge(4, 7, "need"), won(5, 7)):
        counter.add(each)
    assert counter.count == 2


def test_durations_are_of_undisturbed_handoffs_between_two_processes() -> None:
    edges = [*handoff(100, 7, 8, 30), *handoff(200, 8, 7, 50), *handoff(300, 7, 7, 10), *handoff(400, 7, 8, 70)]
    assert durations_ms(edges, []) == [30, 50, 70]
    assert durations_ms(edges, [(240 * MS, 260 * MS)]) == [30, 70]
    assert durations_ms(edges, [(150 * MS, 180 * MS)]) == [30, 50, 70]


def test_a_wake_that_nobody_yielded_for_has_no_duration() -> None:
    released = [edge(1, 7, "release", "awake", "draining"), won(500, 8), edge(501, 8, "mapped", "waking", "awake")]
    assert durations_ms(released, []) == []


def test_the_state_at_death_is_the_last_one() -> None:
    edges = [edge(1, 7, "door_won", target="joining"), edge(2, 8, "need", target="doorway"), edge(3, 7, "made", target="waiting")]
    assert states_at_death(edges, [7, 9]) == {7: "waiting", 9: "asleep"}


def test_edges_are_put_in_the_order_of_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    other = {**edge(0, 7, "demand"), "machine": "sleep"}
    trace.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in (won(2, 7), other, won(1, 8))))
    assert [each["pid"] for each in token_edges(trace)] == [8, 7]


def test_a_trace_is_followed_while_it_is_written(tmp_path: Path) -> None:
    """A line may be there by halves."""
    trace = tmp_path / "trace"
    lines = [json.dumps(won(n, n), separators=(",", ":")) + "\n" for n in (1, 2, 3)]
    trace.write_text(lines[0] + lines[1][:20])
    with Handoffs(trace) as handoffs:
        assert handoffs.count == 0
        with trace.open("a") as file:
            file.write(lines[1][20:] + lines[2])
        assert handoffs.wait_for_more(2 - handoffs.count, threading.Event()) and handoffs.count == 2
        end = threading.Event()
        end.set()
        assert not handoffs.wait_for_more(1, end)
