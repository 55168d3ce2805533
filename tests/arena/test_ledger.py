"""The ledger: real files, real locks, real deaths."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.arena.ledger import Ledger
from lsm.arena.ledger_status import accounts
from lsm.arena.pages import SLOT_SIZE_BYTES, Page, decode, encode
from lsm.arena.victims import Ask
from lsm.errors import ArenaError

from .helpers import child_environ, readable

OWNER = """
import sys
from lsm.arena.ledger import Ledger
ledger = Ledger(sys.argv[1], "child")
ledger.write(sizes={"weights": 7}, stays=2)
ledger.open_page()
print("open", flush=True)
while True:
    ledger.write(needs=ledger.page.needs + 1)
"""


@pytest.fixture
def new_ledger(arena: Path) -> Iterator[Callable[..., Ledger]]:
    with ExitStack() as ledgers:

        def new(label: str = "", size: int = 0) -> Ledger:
            ledger = ledgers.enter_context(Ledger(arena, label))
            ledger.write(sizes={"weights": size})
            ledger.open_page()
            return ledger

        yield new


@pytest.fixture
def child(arena: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", OWNER, str(arena)], stdout=subprocess.PIPE, text=True, env=child_environ()) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_everybody_sees_what_everybody_has(new_ledger: Callable[..., Ledger]) -> None:
    """Design 4: the sum in the arena's ledger."""
    a, b = new_ledger("a", 5), new_ledger("b", 6)
    assert [(e.label, e.alive, e.page.bytes) for e in a.others()] == [("b", True, 6)]
    a.write(sizes={"weights": 1, "kv": 2}, stays=2)
    assert [(e.label, e.page.bytes, e.page.stays) for e in b.others()] == [("a", 3, 2)]
    a.close()
    assert b.others() == []


def test_a_page_outlives_its_owner(arena: Path, new_ledger: Callable[..., Ledger], child: subprocess.Popen[str]) -> None:
    """Design 4: crash-safe; a dead owner's bytes count until somebody has seen its memory free, and then come back."""
    a = new_ledger("a")
    child.send_signal(signal.SIGKILL)
    child.wait()
    [entry] = a.others()
    assert (entry.label, entry.alive, entry.page.bytes, entry.page.stays) == ("child", False, 7, 2)
    a.sweep(entry.name)
    assert a.others() == []
    assert [len(list((arena / directory).iterdir())) for directory in ("ledger", "bells")] == [1, 1]


def test_a_hundred_kills_leave_a_page_that_can_be_read_each_time(arena: Path, new_ledger: Callable[..., Ledger]) -> None:
    """Design 4: stress; readers never meet half a page, of the living or of the dead."""
    a = new_ledger("a")
    for number in range(100):
        ready, writes = os.pipe()
        if not (pid := os.fork()):
            try:
                write_for_ever(arena, writes)
            finally:
                os._exit(1)
        assert readable(ready)
        assert all(entry.page.bytes == 7 for _ in range(number % 20) for entry in a.others())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)
        os.close(writes)
        [entry] = a.others()
        assert not entry.alive and entry.page.bytes == 7
        a.sweep(entry.name)


def write_for_ever(arena: Path, ready_fd: int) -> None:
    ledger = Ledger(arena, "child")
    ledger.write(sizes={"weights": 7})
    ledger.open_page()
    os.write(ready_fd, b"!")
    while True:
        ledger.write(needs=ledger.page.needs + 1)


def test_an_ask_is_a_lock_and_a_ring(new_ledger: Callable[..., Ledger]) -> None:
    """Design 4: through their bells; level, so that there is nothing to miss."""
    a, b = new_ledger("a", 5), new_ledger("b", 5)
    [entry] = a.others()
    assert b.asked() is Ask.NOTHING
    for ask in (Ask.SOME, Ask.ALL, Ask.SOME):
        assert a.ask(entry.name, ask)
        assert b.asked() is b.asked() is ask
        assert readable(b.bell_fd)
        b.bell_hear()
        assert not readable(b.bell_fd, 0)
    a.withdraw(entry.name)
    assert b.asked() is Ask.NOTHING


def test_the_ask_of_a_dead_asker_is_taken_back(arena: Path, new_ledger: Callable[..., Ledger]) -> None:
    """Design 4: nothing to go stale, a dead asker is cleaned up by the kernel."""
    b = new_ledger("b", 5)
    code = """
import sys
from lsm.arena.ledger import Ledger
from lsm.arena.victims import Ask
ledger = Ledger(sys.argv[1])
assert ledger.ask("000001.b", Ask.ALL)
print("asked", flush=True)
input()
"""
    command = [sys.executable, "-c", code, str(arena)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environ()) as asker:
        assert asker.stdout is not None and asker.stdout.readline() == "asked\n"
        assert b.asked() is Ask.ALL
        asker.kill()
    assert b.asked() is Ask.NOTHING


def test_who_asks_is_told_to_people(new_ledger: Callable[..., Ledger], arena: Path) -> None:
    """Design 4: who was asked to leave for whom."""
    a, b = new_ledger("a", 5), new_ledger("b", 6)
    a.write(asks=(b.number,), needs=4)
    assert b.asker() == ("a", 4) and a.asker() is None
    assert [(x.label, x.alive, x.page.bytes, x.asks) for x in accounts(arena)] == [("a", True, 5, ("b",)), ("b", True, 6, ())]


def test_what_is_none_of_ours_is_passed_over(arena: Path, new_ledger: Callable[..., Ledger], tmp_path: Path) -> None:
    """Design 3: odd names, links, directories, FIFOs in the place of a page: nobody's bytes."""
    a = new_ledger("a")
    pages = arena / "ledger"
    (tmp_path / "elsewhere").write_text("x")
    (pages / "notes.txt").write_text("x")
    (pages / "000007.link").symlink_to(tmp_path / "elsewhere")
    (pages / "000008.directory").mkdir()
    os.mkfifo(pages / "000009.fifo")
    assert a.others() == [] and a.ask("000007.link", Ask.ALL)
    assert new_ledger("b").number == 10
    assert (tmp_path / "elsewhere").read_text() == "x"


def test_garbage_of_the_dead_has_no_bytes_and_garbage_of_the_living_is_refused(arena: Path, new_ledger: Callable[..., Ledger]) -> None:
    """Design 4: what cannot be read is never taken for room."""
    a, b = new_ledger("a"), new_ledger("b", 6)
    (arena / "ledger" / "000007.dead").write_bytes(b"garbage")
    assert [(e.label, e.alive, e.page.bytes) for e in a.others()] == [("b", True, 6), ("dead", False, 0)]
    (arena / "ledger" / f"{b.number:06d}.b").write_bytes(b"garbage")
    with pytest.raises(ArenaError, match=r"000002\.b is locked, but no page of lsm; end the program"):
        a.others()


def test_files_are_private_and_closed_on_exec(arena: Path, new_ledger: Callable[..., Ledger]) -> None:
    """Design 3: close-on-exec; nobody else may read or ring."""
    a = new_ledger("a")
    assert not os.get_inheritable(a.bell_fd)
    for directory in ("ledger", "bells"):
        [path] = (arena / directory).iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_deleted_page_asks_its_owner_to_leave(arena: Path, new_ledger: Callable[..., Ledger]) -> None:
    """Decisions: a holder whose arena was deleted leaves; nobody could see what it has."""
    a = new_ledger("a", 5)
    (arena / "ledger" / "000001.a").unlink()
    assert a.asked() is Ask.ALL


PAGES = st.builds(
    Page, st.integers(0, 2**31), st.dictionaries(st.sampled_from(["weights", "kv"]), st.integers(0, 2**62)), st.integers(0, 2**62),
    st.booleans(), st.floats(0, 1e9), st.floats(0, 1e9), st.integers(0, 2**62), st.lists(st.integers(1, 999_999), max_size=3).map(tuple),
    st.booleans(),
)  # fmt: skip


@given(PAGES, st.integers(0, 2**60))
def test_a_page_comes_back_as_it_was_written(page: Page, sequence: int) -> None:
    """Design 4: holding bytes by class, last use, busy, what it was asked to give."""
    assert decode(encode(page, sequence)) == (sequence, page)


@given(PAGES, st.integers(0, SLOT_SIZE_BYTES - 1), st.integers(1, 255))
def test_a_torn_slot_is_seen(page: Page, place: int, flipped: int) -> None:
    """Design 4: a check sum; any byte that differs makes the slot unreadable, or is outside what it says."""
    slot = bytearray(encode(page, 1))
    slot[place] ^= flipped
    assert decode(bytes(slot)) in (None, (1, page))


@given(st.binary(max_size=2 * SLOT_SIZE_BYTES))
def test_bytes_of_others_are_no_page(raw: bytes) -> None:
    """Design 4: garbage is ignored, never an exception."""
    assert decode(raw) is None


def test_many_asks_leave_room_for_what_counts() -> None:
    """Design 4: nothing is decided by names, so they go before the slot overflows."""
    slot = encode(Page(sizes={"weights": 2**60}, asks=tuple(range(100_000, 100_400))), 1)
    assert len(slot) == SLOT_SIZE_BYTES
    assert decode(slot) == (1, Page(sizes={"weights": 2**60}))
