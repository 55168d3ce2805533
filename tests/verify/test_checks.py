"""The checks of a trace: each finds what it is for, at the line where it is, and leaves lawful traces alone."""

from __future__ import annotations

import pytest

from lsm.machines import MACHINES
from lsm.verify import Limits, Story, tell, verify
from tests.verify.scribe import Scribe, handed_on

TOTAL = sum(len(machine.edges) for machine in MACHINES.values())


def verdicts(scribe: Scribe, limits: Limits | None = None) -> dict[str, Story | None]:
    return {verdict.check: verdict.story for verdict in verify(scribe.sorted(), limits or Limits())}


def story(scribe: Scribe, check: str, limits: Limits | None = None) -> Story:
    found = verdicts(scribe, limits)
    assert list(found)[-1] == check, "the first check that fails is the last one told"
    wrong = found[check]
    assert wrong is not None
    return wrong


def test_a_lawful_trace_passes_and_is_counted() -> None:
    """Design 9: what was looked at is told, so that nobody takes little for much."""
    told = [(verdict.check, verdict.seen, verdict.story) for verdict in verify(handed_on().sorted())]
    assert told == [
        ("alone", f"15 edges of 2 subjects in 2 processes follow from the tables; 9 of {TOTAL} different ones", None),
        ("together", "2 turns of 2 models: one holder, in order", None),
        ("time", "1 yield to somebody who waited, none before 100 ms; latest 0 ms overdue", None),
    ]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"source": "doorway"}, "it stood in 'waiting', but the edge starts in 'doorway'"),
        ({"event": "mapped"}, "the table has no edge for 'mapped' in 'waiting' with no facts"),
        ({"target": "awake"}, "the table leads to 'taking' and does ['token_try'], the record to 'awake'"),
        ({"effects": ()}, "and does []"),
    ],
)
def test_an_edge_that_is_none_is_found_alone(changes: dict[str, object], what: str) -> None:
    scribe = handed_on()
    scribe.spoil(3, **changes)
    wrong = story(scribe, "alone")
    assert what in wrong.what and wrong.where == "trace:4"


def test_an_edge_whose_fact_is_missing_is_found_alone() -> None:
    scribe = handed_on()
    scribe.spoil(9, facts={"rested": True, "wanted": True})
    assert "no edge for 'look' in 'awake' with rested=True, wanted=True" in story(scribe, "alone").what


def test_an_edge_that_was_left_out_is_found_at_the_next_one() -> None:
    scribe = handed_on()
    del scribe.records[4]
    assert "it stood in 'taking', but the edge starts in 'waking'" in story(scribe, "alone").what


def test_a_process_that_starts_again_begins_anew_though_its_id_is_the_same() -> None:
    """A container's server has the same process id after each restart."""
    scribe = Scribe()
    scribe.join(0, 1, run=1)
    scribe.join(10, 1, run=2)
    assert set(verdicts(scribe).values()) == {None}
    for number in range(3, 6):
        scribe.spoil(number, run=1)
    assert "it stood in 'waiting'" in story(scribe, "alone").what


def test_two_holders_are_found_together() -> None:
    """S10: the first one still has it, as its later edges show."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.join(20, 2)
    scribe.win(115, 2)
    scribe.look(130, 1)
    wrong = story(scribe, "together")
    assert wrong.what == "'a' of process 2 got the token while 'a' of process 1 had it (awake)"
    assert wrong.where == "trace:11"


def test_a_holder_that_is_never_heard_of_again_was_killed() -> None:
    """S1: nobody records a kill -9."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.join(20, 2)
    scribe.win(30, 2)
    assert set(verdicts(scribe).values()) == {None}


def test_a_request_shows_that_a_silent_holder_lived() -> None:
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.join(20, 2)
    scribe.win(30, 2)
    scribe.take(40, 1, "request", "cancel", subject="a/7")
    assert "had it (awake)" in story(scribe, "together").what


def test_whoever_overtakes_is_found_together() -> None:
    """S1: first come, first served."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.join(10, 2)
    scribe.win(20, 2)
    scribe.take(30, 1, "token", "cancel")
    wrong = story(scribe, "together")
    assert wrong.what == "'a' of process 2 got the token although 'a' of process 1 joined earlier and still waits"


def test_nobody_is_overtaken_who_has_left_or_could_not_lock_its_ticket() -> None:
    left = Scribe()
    left.join(0, 1)
    left.join(10, 2)
    left.take(15, 1, "token", "cancel")
    left.win(20, 2)
    assert set(verdicts(left).values()) == {None}
    spoiled = Scribe()
    spoiled.join(0, 1)
    spoiled.join(10, 2)
    spoiled.win(20, 2)
    spoiled.take(30, 1, "token", "line_failed")
    assert set(verdicts(spoiled).values()) == {None}


def test_memory_without_the_token_is_found_together() -> None:
    """S10: resident implies token, at every edge of either machine."""
    scribe = Scribe()
    scribe.take(0, 1, "residency", "enter")
    assert story(scribe, "together").what == "'a' of process 1 has device memory (arriving), but not the token (asleep)"


def test_work_while_asleep_is_found_together() -> None:
    """S6: nothing looks at the memory before it is back."""
    scribe = Scribe()
    scribe.take(0, 1, "slot", "assign", subject="a/slot 0", lead=True)
    assert story(scribe, "together").what == "'a' of process 1 decodes while asleep, with its memory absent"


def test_a_yield_before_the_minimum_hold_is_found_in_time() -> None:
    """S3: from `mapped` to the look that gives the device away."""
    scribe = handed_on()
    wrong = story(scribe, "time", Limits(min_hold_ms=101))
    assert wrong.what == "'a' gave the device away after 100.0 ms; the minimum hold is 101 ms"


def test_an_owner_may_let_go_at_once() -> None:
    """S3: the minimum hold is owed to contention only."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    scribe.take(13, 1, "token", "release")
    assert set(verdicts(scribe).values()) == {None}


def generating(quantum_ms: int, yield_at_ms: int) -> dict[str, Story | None]:
    """A request runs from 15 ms on; somebody is seen waiting at 120 ms."""
    scribe = Scribe()
    scribe.join(0, 1)
    scribe.win(10, 1)
    records = scribe.records
    for machine, *events in (("residency", "enter", "loaded"), ("sleep", "demand", "device_ready")):
        for event in events:
            scribe.take(12, 1, machine, event)
    scribe.take(15, 1, "request", "start", subject="a/7")
    scribe.look(120, 1, due=False)
    scribe.look(yield_at_ms, 1)
    scribe.take(yield_at_ms + 1, 1, "request", "finish", subject="a/7")
    assert len(records) == 14
    return verdicts(scribe, Limits(quantum_ms=quantum_ms))


def test_a_generation_is_interrupted_only_after_the_quantum() -> None:
    """Design 3.4: the quantum runs from the first look that saw somebody wait."""
    assert generating(2000, 2120)["time"] is None
    early = generating(2000, 2119)["time"]
    assert early is not None and early.what == "'a/7' was interrupted 1999.0 ms after somebody waited; the quantum is 2000 ms"
    never = generating(0, 9000)["time"]
    assert never is not None and "although the quantum is 0" in never.what


def test_a_holder_that_stays_for_long_after_the_quantum_is_found() -> None:
    """Design 3.4: a bound on the wait, with some slack for a busy machine."""
    assert generating(2000, 3119)["time"] is None
    late = generating(2000, 3121)["time"]
    assert late is not None and late.what == "'a' kept the device for 1001 ms after the quantum of somebody who waited"


def test_a_story_ends_with_the_line_and_the_sentence() -> None:
    scribe = handed_on()
    scribe.spoil(14, source="waiting")
    lines = list(tell(story(scribe, "alone")))
    assert lines[-1] == "token of 'a', process 2: it stood in 'waking', but the edge starts in 'waiting'"
    assert lines[-2] == "   +0.0000 s  process 2  a  token: waiting --mapped !budgeted--> awake  (trace:15)"
    assert lines[-3] == "   -0.0010 s  process 2  a  token: taking --token_won alone--> waking  (trace:14)"
    assert len(lines) == 7
