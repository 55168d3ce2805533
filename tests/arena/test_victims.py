"""Who is to leave: sufficient, as cheap as can be, nobody who is protected."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lsm.arena.victims import Ask, Candidate, everybody, victims

SIZES = st.integers(0, 6)


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    made = []
    for number in range(draw(st.integers(0, 4))):
        some = draw(SIZES)
        busy, protected, asked = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(list(Ask)))
        made.append(Candidate(f"m{number}", some, some + draw(SIZES), busy, float(draw(st.integers(0, 2))), protected, asked))
    return made


def freed(asks: dict[str, Ask], among: list[Candidate]) -> int:
    given = {Ask.NOTHING: lambda c: 0, Ask.SOME: lambda c: c.some_bytes, Ask.ALL: lambda c: c.all_bytes}
    return sum(given[asks.get(c.name, Ask.NOTHING)](c) for c in among)


def pieces(c: Candidate, ask: Ask) -> list[tuple[tuple[bool, bool, bool, float, str], int]]:
    """Cost and size of each piece that this ask takes, as the docstring of `victims` orders them."""
    sizes = {Ask.SOME: c.some_bytes, Ask.ALL: c.all_bytes - c.some_bytes}
    return [((p > c.asked, p is Ask.ALL, c.busy, c.used_s, c.name), size) for p, size in sizes.items() if p <= ask and size]


def cost(asks: dict[str, Ask], among: list[Candidate]) -> list[tuple[bool, bool, bool, float, str]]:
    """The dearest piece first: sets are compared as these lists are."""
    return sorted((key for c in among for key, _ in pieces(c, asks.get(c.name, Ask.NOTHING))), reverse=True)


@given(st.integers(1, 30), candidates())
def test_the_chosen_suffice_or_nobody_can_help(missing: int, among: list[Candidate]) -> None:
    """Design 4: a sufficient set; None exactly when all that are not protected are not enough."""
    chosen = victims(missing, among)
    if chosen is None:
        assert sum(c.all_bytes for c in among if not c.protected) < missing
    else:
        assert freed(chosen, among) >= missing


@given(st.integers(1, 30), candidates())
def test_no_other_set_is_cheaper(missing: int, among: list[Candidate]) -> None:
    """Design 4: the cheapest: compared with every other set there is."""
    chosen = victims(missing, among)
    if chosen is None:
        return
    free = [c for c in among if not c.protected]
    sets = [dict(zip([c.name for c in free], asks, strict=True)) for asks in product(Ask, repeat=len(free))]
    assert cost(chosen, among) == min(cost(asks, among) for asks in sets if freed(asks, among) >= missing)


@given(st.integers(1, 30), candidates())
def test_nobody_is_asked_in_vain(missing: int, among: list[Candidate]) -> None:
    """Design 4: without any one of them it would not be enough."""
    chosen = victims(missing, among) or {}
    for name in chosen:
        for less in (Ask.NOTHING, Ask.SOME):
            fewer = {**chosen, name: min(less, chosen[name])}
            assert fewer == chosen or freed(fewer, among) < missing or freed(fewer, among) == freed(chosen, among)


@given(st.integers(1, 30), candidates())
def test_who_is_protected_is_never_chosen(missing: int, among: list[Candidate]) -> None:
    """S3: the minimum hold."""
    protected = {c.name for c in among if c.protected}
    assert not protected & set(victims(missing, among) or {})


@given(st.integers(1, 30), candidates())
def test_who_was_asked_is_asked_on(missing: int, among: list[Candidate]) -> None:
    """P5: an asker that changed its mind at each look would wait for ever."""
    chosen = victims(missing, among)
    if chosen:
        asked = [Candidate(c.name, c.some_bytes, c.all_bytes, not c.busy, -c.used_s, False, chosen.get(c.name, Ask.NOTHING)) for c in among]
        assert victims(missing, asked) == chosen


@given(st.permutations([Candidate(name, 1, 1, used_s=1.0) for name in "abc"]))
def test_equal_stamps_choose_alike(among: list[Candidate]) -> None:
    """P5: equal times of use select somebody, always the same."""
    assert victims(1, among) == {"a": Ask.SOME}


def test_weights_leave_before_any_kv_cache_and_the_longest_unused_first() -> None:
    """Design 4: compute before weights before KV, least recently used first."""
    among = [Candidate("old", 4, 8, used_s=1.0), Candidate("new", 4, 8, used_s=2.0), Candidate("away", 0, 4, used_s=0.0)]
    assert victims(4, among) == {"old": Ask.SOME}
    assert victims(5, among) == {"old": Ask.SOME, "new": Ask.SOME}
    assert victims(9, among) == {"old": Ask.SOME, "new": Ask.SOME, "away": Ask.ALL}
    assert everybody(among) == {"old": Ask.ALL, "new": Ask.ALL, "away": Ask.ALL}
