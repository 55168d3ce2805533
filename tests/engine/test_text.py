"""Whole characters, exact stop strings, whatever the tokens are."""

from __future__ import annotations

import codecs
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.engine.text import TextStream


def run(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[str, str, list[str]]:
    stream = TextStream(stop)
    parts = [stream.feed(piece) for piece in pieces]
    parts.append(stream.flush())
    return "".join(parts), stream.stopping_word, parts


def every_split(data: bytes) -> list[list[bytes]]:
    """All 2^(n-1) ways to cut `data`."""
    splits = []
    for cuts in product((False, True), repeat=max(0, len(data) - 1)):
        pieces, start = [], 0
        for i, cut in enumerate(cuts, start=1):
            if cut:
                pieces.append(data[start:i])
                start = i
        splits.append([*pieces, data[start:]])
    return splits


def expected(text: str, stop: tuple[str, ...]) -> tuple[str, str]:
    """The definition, one character at a time: the first stop string to be complete, the longest of those."""
    for end in range(1, len(text) + 1):
        complete = [word for word in stop if text[:end].endswith(word)]
        if complete:
            word = max(complete, key=len)
            return text[: end - len(word)], word
    return text, ""


@pytest.mark.parametrize("text", ["é😀a", "naïve 日本", "👩‍👩"])
def test_every_split_of_a_text_gives_the_text(text: str) -> None:
    """B.2: UTF-8 is never split."""
    for pieces in every_split(text.encode()):
        out, _, parts = run(pieces)
        assert out == text
        assert "\ufffd" not in "".join(parts)


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("one STOP two", ("STOP",)),
        ("ababac", ("abac",)),
        ("xabcdy", ("abcd", "bc")),
        ("xabcdy", ("bcd", "abcd")),
        ("aaab", ("aab", "b")),
        ("ends with ST", ("STOP",)),
        ("é😀|fin", ("😀|",)),
    ],
)
def test_every_split_stops_at_the_same_place(text: str, stop: tuple[str, ...]) -> None:
    """B.2 stop: found across token borders, cut exactly."""
    for pieces in every_split(text.encode()):
        out, word, _ = run(pieces, stop)
        assert (out, word) == expected(text, stop)


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="abé😀\n", max_size=24), st.lists(st.text(alphabet="abé😀", min_size=1, max_size=4), max_size=3), st.data())
def test_any_split_of_any_text_gives_the_same(text: str, stop: list[str], data: st.DataObject) -> None:
    """B.2 stop, UTF-8: any split, any stop strings."""
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert run(pieces, tuple(stop))[:2] == expected(text, tuple(stop))


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=24), st.data())
def test_invalid_bytes_are_replaced_the_same_however_they_come(raw: bytes, data: st.DataObject) -> None:
    """B.2: bytes that are no UTF-8 become U+FFFD, once that is certain; what may still become a character at the end is left out."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert run(pieces)[0] == codecs.getincrementaldecoder("utf-8")("replace").decode(raw, final=False)


@settings(deadline=None, max_examples=60)
@given(st.text(alphabet="abcé", max_size=16), st.lists(st.text(alphabet="abcé", min_size=1, max_size=4), min_size=1, max_size=3))
def test_text_is_held_back_only_while_it_may_become_a_stop_string(text: str, stop: list[str]) -> None:
    """B.2 stop: nothing of a stop string is ever shown, and nothing else waits."""
    stream, shown = TextStream(tuple(stop)), ""
    for end, char in enumerate(text, start=1):
        shown += stream.feed(char.encode())
        if stream.stopping_word:
            break
        held = text[len(shown) : end]
        assert text[:end] == shown + held
        assert not held or any(word.startswith(held) for word in stop)


@pytest.mark.parametrize("n_bytes", [1, 2, 3])
def test_half_a_character_at_the_end_is_dropped(n_bytes: int) -> None:
    """B.2: as in llama-server; U+FFFD only where no later byte could have made a character of it."""
    stream = TextStream(("END",))
    assert stream.feed(b"a EN" + "😀".encode()[:n_bytes]) == "a "
    assert stream.flush() == "EN"
    assert run([b"a\xff", "😀".encode()[:n_bytes]])[0] == "a\ufffd"


def test_nothing_comes_after_a_stop_string() -> None:
    """B.2 stop: the text ends before the stop string, held text is dropped."""
    stream = TextStream(("END",))
    assert stream.feed(b"a EN") == "a "
    assert stream.feed(b"D more") == ""
    assert stream.feed(b" and more") == ""
    assert stream.flush() == ""
    assert stream.stopping_word == "END"


def test_an_empty_stop_string_is_none() -> None:
    """B.2 stop: "" would stop before the first character."""
    assert run([b"abc"], ("",))[:2] == ("abc", "")
