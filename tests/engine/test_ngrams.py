"""What is guessed from the text before: one test for each sentence.  Pure."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.prefix import Tokens
from lsm.engine.speculation.drafter import Ask, Drafter
from lsm.engine.speculation.history import occurrences
from lsm.engine.speculation.lookup_file import read_lookup
from lsm.engine.speculation.ngram_cache import NgramCache
from lsm.engine.speculation.ngram_map import NgramMap
from lsm.engine.speculation.ngram_mod import NgramMod, Table, hashes
from lsm.engine.speculation.ngram_simple import NgramSimple, draft_simple
from lsm.errors import ConfigError


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def guess(drafter: Drafter, *tokens: int, slot: int = 0) -> list[int]:
    return drafter.draft([Ask(slot, ids(*tokens), 99)])[slot].tolist()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 4))
def test_places_of_an_n_gram(tokens: list[int], n: int) -> None:
    """C.8 ngram: every place, and no other."""
    key = tokens[-n:]
    expected = [i for i in range(max(0, len(tokens) - n)) if tokens[i : i + n] == key]
    assert occurrences(ids(*tokens), ids(*key), 0, len(tokens) - len(key)).tolist() == (expected if len(key) == n else [])


def test_simple_guesses_what_followed_the_last_time() -> None:
    """C.8 ngram-simple: the latest place counts."""
    text = (0, 1, 2, 7, 7, 7, 1, 2, 8, 8, 8, 1, 2)
    assert draft_simple(ids(*text), 2, 3).tolist() == [8, 8, 8]
    assert draft_simple(ids(*text), 2, 4).tolist() == [8, 8, 8, 1]


def test_simple_guesses_nothing_without_a_place() -> None:
    """C.8 ngram-simple: too short a text, no place, the first place, fewer than size_n tokens behind it, fewer places than min_hits."""
    assert not len(draft_simple(ids(0, 1, 2, 3, 1, 2), 2, 3))
    assert not len(draft_simple(ids(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 2, 3))
    assert not len(draft_simple(ids(1, 2, 3, 4, 5, 6, 7, 8, 1, 2), 2, 3))
    assert not len(draft_simple(ids(0, 9, 9, 9, 9, 9, 1, 1, 1, 1), 3, 3))
    text = ids(0, 1, 2, 5, 5, 5, 5, 5, 1, 2)
    assert draft_simple(text, 2, 3, min_hits=1).tolist() == [5, 5, 5]
    assert not len(draft_simple(text, 2, 3, min_hits=2))


@pytest.mark.parametrize("by_value", [False, True])
def test_what_was_guessed_in_vain_is_guessed_shorter(by_value: bool) -> None:
    """C.8 ngram-map: as long as the part that was right the last time; a new request begins anew."""
    drafter = NgramMap(2, 3, 1, by_value=by_value)
    drafter.begin(0)
    text = (0, 1, 2, 7, 8, 9, 4, 1, 2)
    assert guess(drafter, *text) == [7, 8, 9]
    drafter.accepted(0, 1)
    assert guess(drafter, *text) == [7]
    drafter.accepted(0, 0)
    assert guess(drafter, *text) == []
    drafter.begin(0)
    assert guess(drafter, *text) == [7, 8, 9]
    assert guess(drafter, *text, slot=1) == [7, 8, 9]


def test_k4v_guesses_only_what_stands_out() -> None:
    """C.8 ngram-map-k4v: a continuation that is at least twice as frequent as the others together."""
    drafter = NgramMap(1, 2, 1, by_value=True)
    assert guess(drafter, 0, 1, 7, 7, 1, 8, 8, 3, 1) == []
    assert guess(drafter, 0, 1, 7, 7, 1, 8, 8, 1, 7, 7, 3, 1) == [7, 7]
    assert guess(NgramMap(1, 2, 1, by_value=False), 0, 1, 7, 7, 1, 8, 8, 3, 1) == [8, 8]


@given(st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=12))
def test_the_hash_is_that_of_the_formula(tokens: list[int]) -> None:
    """C.8 ngram-mod: h = h * factor + token, modulo 2**64."""
    value = 0
    for token in tokens[:3]:
        value = (value * 6364136223846793005 + token) % 2**64
    assert int(hashes(ids(*tokens), 3)[0]) == value


@given(st.lists(st.integers(0, 4), min_size=4, max_size=40), st.integers(1, 3))
def test_a_table_follows_the_text(tokens: list[int], n: int) -> None:
    """C.8 ngram-mod: each token after the last `n` ones, as it came the last time; the hash that rolls is the hash of all."""
    table = Table(n, 1 << 16)
    table.add(ids(*tokens))
    known = {tuple(tokens[i - n : i]): tokens[i] for i in range(n, len(tokens))}
    window, expected = tokens[-n:], []
    while len(expected) < 9 and (token := known.get(tuple(window))) is not None:
        expected.append(token)
        window = [*window[1:], token]
    assert table.follow(ids(*tokens), 9) == expected


def test_mod_guesses_from_what_all_slots_have_said() -> None:
    """C.8 ngram-mod: one table; drafts that are too short are not used."""
    drafter = NgramMod(2, 2, 4, n_entries=1 << 12)
    drafter.begin(0)
    assert guess(drafter, 1, 2, 3, 4, 5, 6, 7) == []
    drafter.begin(1)
    assert guess(drafter, 9, 2, 3, slot=1) == [4, 5, 6]
    assert guess(drafter, 9, 4, 5, slot=1) == []


def test_mod_forgets_everything_when_nothing_comes_true() -> None:
    """C.8 ngram-mod: five drafts in a row of which less than a quarter was right; then the text of each slot is put in again."""
    drafter = NgramMod(1, 1, 4, n_entries=1 << 12)
    text = (1, 2, 3, 4, 5, 1)
    for _ in range(5):
        assert len(guess(drafter, *text)) == 4
        drafter.accepted(0, 0)
    drafter.begin(1)
    assert guess(drafter, 9, 1, slot=1) == []
    assert len(guess(drafter, *text)) == 4


def test_mod_begins_anew_when_the_table_is_full() -> None:
    """C.8 ngram-mod: when a quarter of its places is taken."""
    drafter = NgramMod(1, 1, 4, n_entries=16)
    guess(drafter, *range(9))
    drafter.begin(1)
    assert guess(drafter, 3, slot=1) == []


def test_cache_guesses_what_followed_most_often() -> None:
    """C.8 ngram-cache: up to eight tokens, of the longest n-gram for which the counts are clear."""
    drafter = NgramCache({}, {})
    drafter.begin(0)
    assert guess(drafter, 1, 2, 3, 4, 5, 6, 1, 2, 3) == [4, 5, 6, 1, 2, 3, 4, 5]
    drafter.begin(0)
    assert guess(drafter, 7, 8) == []
    drafter.begin(0)
    assert guess(drafter, 5, 1, 6, 1, 7, 1) == []


def test_cache_counts_each_token_once() -> None:
    """C.8 ngram-cache: a text that grows is counted as if it had come at once."""
    grown, whole = NgramCache({}, {}), NgramCache({}, {})
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]
    for n in range(1, len(text) + 1):
        last = guess(grown, *text[:n])
    assert last == guess(whole, *text)
    assert grown._seen[0] == whole._seen[0]


def test_files_are_asked_after_the_text() -> None:
    """C.8 -lcs, -lcd: dynamic counts must be clearer than those of the text; static ones are the last resort, and weigh the others."""
    assert guess(NgramCache({(3,): {9: 4}}, {}), 3, 3) == [9]
    assert guess(NgramCache({(3,): {9: 3}}, {}), 3, 3) == []
    assert guess(NgramCache({}, {(1, 2): {5: 2}}), 1, 2) == [5]
    assert guess(NgramCache({(2,): {7: 3, 6: 2, 8: 1}}, {(1, 2): {6: 1}}), 1, 2) == []
    assert guess(NgramCache({(1, 2): {7: 2, 6: 4}}, {(1, 2): {6: 9, 7: 1}}), 1, 2)[:1] == [6]


def test_a_lookup_file_is_read(tmp_path: Path) -> None:
    """C.8 -lcs: four tokens, padded with -1, how many counts, and pairs of a token and its count; all int32, little-endian."""
    path = tmp_path / "lookup.bin"
    path.write_bytes(struct.pack("<9i", 1, 2, -1, -1, 2, 5, 3, 6, 1) + struct.pack("<7i", 4, -1, -1, -1, 1, 9, 2))
    assert read_lookup(path, "-lcs") == {(1, 2): {5: 3, 6: 1}, (4,): {9: 2}}


@pytest.mark.parametrize(
    "data", [b"x", struct.pack("<5i", 1, -1, -1, -1, 0), struct.pack("<6i", 1, -1, -1, -1, 9, 9), struct.pack("<7i", 1, 2, 3, 4, 1, 5, 0)]
)
def test_a_damaged_lookup_file_is_refused(tmp_path: Path, data: bytes) -> None:
    """C.8 -lcs: cut off, or with counts that cannot be; the message names flag and file."""
    path = tmp_path / "lookup.bin"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="-lcs .*lookup.bin: is not a lookup cache"):
        read_lookup(path, "-lcs")
    with pytest.raises(ConfigError, match="-lcd .*none.bin: No such file"):
        read_lookup(tmp_path / "none.bin", "-lcd")


def test_simple_is_a_drafter() -> None:
    """C.8 ngram-simple: for several slots at once."""
    drafter = NgramSimple(2, 3, 1)
    text = ids(0, 1, 2, 8, 8, 8, 4, 1, 2)
    assert {slot: draft.tolist() for slot, draft in drafter.draft([Ask(0, text, 9), Ask(3, text, 9)]).items()} == {
        0: [8, 8, 8],
        3: [8, 8, 8],
    }
