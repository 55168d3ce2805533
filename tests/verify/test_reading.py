"""Reading traces: what is wrong with a line is told with its place; what a kill or a full disk leaves behind is tolerated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lsm.runtime.executor import Fired
from lsm.runtime.trace import line_of
from lsm.verify import TraceError, read_traces
from lsm.verify.record import parse

FIRED = Fired("token", "m", "asleep", "need", {}, "doorway", ("door_try",), 7)
GOOD = json.loads(line_of(FIRED, 3, 5))


def spoiled(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


def test_what_the_recorder_writes_is_what_is_read() -> None:
    """Anchors A5: the binding of trace and program, field by field."""
    record = parse(line_of(FIRED, 3, 5), "f:1")
    assert (record.t_ns, record.pid, record.run, record.machine, record.subject) == (7, 3, 5, "token", "m")
    assert (record.source, record.event, record.facts, record.target, record.effects) == ("asleep", "need", {}, "doorway", ("door_try",))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"", "not a line of JSON"),
        (b"\xff", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "field 't_ns' is None, which is no int"),
        (spoiled(t_ns=True), "field 't_ns' is True, which is no int"),
        (spoiled(pid="3"), "field 'pid' is '3', which is no int"),
        (spoiled(run="x"), "field 'run' is 'x', which is no int"),
        (spoiled(facts=[]), "field 'facts' is [], which is no dict"),
        (spoiled(machine="tokn"), "unknown machine 'tokn'; this version has: token, "),
        (spoiled(event="kneed"), "machine 'token' has no event 'kneed'"),
        (spoiled(to="door"), "machine 'token' has no state 'door'"),
        (spoiled(facts={"rich": True}), "machine 'token' has no fact 'rich'"),
        (spoiled(facts={"due": 1}), "a fact is neither true nor false"),
        (spoiled(do=[["x"]]), '''has no effect "['x']"'''),
    ],
)
def test_a_line_that_is_wrong_is_named(line: bytes, what: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse(line, "f:9")
    assert caught.value.message.startswith("f:9: ") and what in caught.value.message


def test_files_are_merged_by_time(tmp_path: Path) -> None:
    for name, stamps in (("a", (1, 4)), ("b", (2, 3))):
        (tmp_path / name).write_bytes(b"".join(spoiled(t_ns=t) + b"\n" for t in stamps))
    trace = read_traces([tmp_path / "a", tmp_path / "b"])
    assert [record.t_ns for record in trace.records] == [1, 2, 3, 4]
    assert trace.records[1].where == f"{tmp_path / 'b'}:1"
    assert trace.torn == ()


def test_an_empty_trace_is_an_error(tmp_path: Path) -> None:
    """Anchors, habit 8: nothing was checked, so nothing holds."""
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(TraceError, match="the trace is empty"):
        read_traces([empty])


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    """A kill -9 or a full disk in the middle of a write."""
    file = tmp_path / "t"
    file.write_bytes(spoiled() + b"\n" + spoiled()[:50])
    trace = read_traces([file])
    assert len(trace.records) == 1
    assert trace.torn == (f"{file}:2: the last line is torn (a process was killed while it wrote, or the disk was full): left out",)


def test_a_torn_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_bytes(spoiled()[:50] + b"\n" + spoiled() + b"\n")
    with pytest.raises(TraceError, match="t:1: not a line of JSON"):
        read_traces([file])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="missing: No such file"):
        read_traces([tmp_path / "missing"])
