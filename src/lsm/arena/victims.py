"""Who is to leave, so that somebody else has room: a pure function.

A model gives its memory in two pieces: what leaves with every sleep (compute buffers and weights, which need no copy), and what may stay
behind (the KV cache, which must be copied both ways).  Nobody loses the second piece and keeps the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Ask(IntEnum):
    """How much somebody is asked to give."""

    NOTHING = 0
    SOME = 1  # what leaves with every sleep
    ALL = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model that has device memory.  Sizes in bytes, times in seconds of one clock."""

    name: str
    some_bytes: int  # come back with Ask.SOME
    all_bytes: int  # come back with Ask.ALL; never less
    busy: bool = False
    used_s: float = 0.0  # when it last served
    protected: bool = False  # its minimum hold is not over
    asked: Ask = Ask.NOTHING  # by us, already: it is on its way out


_Piece = tuple[Candidate, Ask]


def victims(missing_bytes: int, candidates: Sequence[Candidate]) -> dict[str, Ask] | None:
    """The cheapest sufficient set, by name; None when nobody can help now: some are protected, and not for long.

    Pieces are ordered by cost: who has been asked already, then weights and compute before KV, idle before busy, least recently used
    first, names last.  A set is as dear as its dearest piece, then as the next one, and so on: so one dear piece is not taken if any
    number of cheaper ones do, and none is taken in vain.
    """
    open_to_us = [candidate for candidate in candidates if not candidate.protected]
    pieces = [(candidate, ask) for candidate in open_to_us for ask in (Ask.SOME, Ask.ALL) if _size_bytes((candidate, ask)) > 0]
    kept = sorted(pieces, key=_cost)
    if sum(map(_size_bytes, kept)) < missing_bytes:
        return None
    for piece in sorted(pieces, key=_cost, reverse=True):
        rest = [other for other in kept if other != piece]
        if sum(map(_size_bytes, rest)) >= missing_bytes and not _needed_by_another(piece, rest):
            kept = rest
    return {candidate.name: max(ask for other, ask in kept if other == candidate) for candidate, _ in kept}


def everybody(candidates: Sequence[Candidate]) -> Mapping[str, Ask]:
    """For a model that shares the device with nobody."""
    return {candidate.name: Ask.ALL for candidate in candidates if candidate.all_bytes}


def _size_bytes(piece: _Piece) -> int:
    candidate, ask = piece
    return candidate.some_bytes if ask is Ask.SOME else candidate.all_bytes - candidate.some_bytes


def _cost(piece: _Piece) -> tuple[bool, bool, bool, float, str]:
    candidate, ask = piece
    return ask > candidate.asked, ask is Ask.ALL, candidate.busy, candidate.used_s, candidate.name


def _needed_by_another(piece: _Piece, rest: Sequence[_Piece]) -> bool:
    candidate, ask = piece
    return ask is Ask.SOME and (candidate, Ask.ALL) in rest
