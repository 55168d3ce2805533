"""Tickets: their names, who counts as alive, and the sweep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.arena import tickets
from lsm.arena.flock import try_exclusive

from .helpers import hung_up

# Of each kind one: what a path minds, what quoting minds, one to four bytes in UTF-8, and half a surrogate pair.
ALPHABET = "aZ9-_~/.%\0\n é漢😀\ud800"


@pytest.fixture
def line_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def alive(line_fd: int, number: int, label: str = "") -> int:
    fd = tickets.create(line_fd, tickets.name_of(number, label))
    assert try_exclusive(fd)
    return fd


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, 10**12 - 1), label=st.text(ALPHABET, max_size=80))
def test_any_label_makes_a_file_name_that_reads_back(number: int, label: str) -> None:
    """S10: a model's alias may be any text, with slashes and all."""
    name = tickets.name_of(number, label)
    parsed = tickets.parse_name(name)
    assert "/" not in name and len(os.fsencode(name)) <= 255
    assert parsed is not None and parsed.number == number and parsed.name == name
    assert label.encode(errors="replace").startswith(parsed.label.encode())
    if len(label.encode(errors="replace")) <= tickets.LABEL_SIZE_BYTES and label.isprintable():
        assert parsed.label == label


@pytest.mark.parametrize("name", ["", "42", "bell", ".000000000042", "000000000042~", "0000000000421", "00000000004x.a"])
def test_foreign_files_are_no_tickets(name: str) -> None:
    """S1: a stray file in the line neither waits nor is swept."""
    assert tickets.parse_name(name) is None


def test_order_is_by_number_not_by_label(line_fd: int) -> None:
    """S1: a label is never part of a decision."""
    for number, label in ((10, "a"), (9, "z"), (11, "")):
        os.close(tickets.create(line_fd, tickets.name_of(number, label)))
    assert [ticket.number for ticket in tickets.list_tickets(line_fd)] == [9, 10, 11]


def test_sweep_takes_the_dead_and_keeps_the_living(line_fd: int, tmp_path: Path) -> None:
    """S1: a dead process leaves a name, the next one to join removes it."""
    fd = alive(line_fd, 5, "living")
    for number in (1, 7):
        os.close(alive(line_fd, number, "dead"))
    (tmp_path / "note.txt").touch()
    assert tickets.sweep(line_fd) == 5
    assert sorted(os.listdir(tmp_path)) == ["000000000005.living", "note.txt"]
    os.close(fd)
    assert tickets.sweep(line_fd) == 0
    assert os.listdir(tmp_path) == ["note.txt"]


def test_nearest_living_below_skips_the_dead_and_the_later(line_fd: int) -> None:
    """S1: each waits for its nearest live neighbour only."""
    first, second, later = alive(line_fd, 1), alive(line_fd, 2), alive(line_fd, 9)
    os.close(alive(line_fd, 3))
    watched = tickets.nearest_alive_below(line_fd, 4)
    assert not hung_up(watched, 0)
    os.close(second)
    assert hung_up(watched)
    os.close(watched)
    watched = tickets.nearest_alive_below(line_fd, 4)
    os.close(first)
    assert hung_up(watched)
    os.close(watched)
    assert tickets.nearest_alive_below(line_fd, 4) == -1
    os.close(later)


def test_no_descriptor_left_means_no_name_left(line_fd: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: a ticket that could not be opened is not left for others to trip over."""

    def no_more_files(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", no_more_files)
    with pytest.raises(OSError, match="Too many open files"):
        tickets.create(line_fd, "000000000001")
    assert os.listdir(tmp_path) == []
