"""What the state of a sequence must look like before llama.cpp may read it, where nobody vouches for its bytes (S31).  Pure.

llama.cpp compares types and sizes as it reads, but takes any position, and one that cannot be leaves cells that nothing frees any more.
So each number that is not a weight's is compared here with those of a state that this context wrote itself.

A state is a header, then parts, one behind the other (all numbers little-endian):

    kv         u32 streams, and for each u32 cells; then, unless there are none, for each cell i32 position, u32 1, ext bytes, i32 sequence;
               u32 transposed, u32 layers; for each layer i32 type, u64 row size, cells x row of keys; then for each layer likewise the
               values, which are, if transposed, i32 type, u32 element size, u32 rows, rows x cells x element
    recurrent  u32 cells (at most one), i32 position, u32 0; u32 0, u32 layers; then to the end i32 type, u64 row size, row
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lsm.engine.checkpoints import STATE_HEADER_BYTES, State
from lsm.engine.slot_file import Damaged

KINDS = (("kv",), ("kv", "kv"), ("recurrent",), ("kv", "recurrent"), ("kv", "kv", "recurrent"))
EXT_BYTES = (0, 12)  # beside the position of each cell, with M-RoPE

Numbers = tuple[int, ...]
Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of one context: its parts, the bytes beside each position, whether values are kept, and the numbers between the weights."""

    parts: tuple[str, ...]
    ext_bytes: int
    has_values: bool
    numbers: Numbers

    def check(self, state: State, rows: Positions) -> None:
        """Raises `Damaged` unless the state is one of this context's, of rows that stand at these positions, (n,) int64, in order."""
        reader = _Reader(state)
        positions = [_part(reader, kind, self) for kind in self.parts]
        if reader.left:
            raise Damaged("its state goes on behind its end")
        if len(rows) and tuple(reader.numbers) != self.numbers:
            raise Damaged("its state is of another model or other settings")
        for place, (kind, found) in enumerate(zip(self.parts, positions, strict=True)):
            is_window = kind == "kv" and place > 0
            _check_positions(found, rows, len(rows) if kind == "kv" and not is_window else None if is_window else min(len(rows), 1))


def learn_shape(state: State, n_tokens: int) -> StateShape | None:
    """The shape of a state that this context wrote of so many tokens (a few, at least one); None: it is of a kind not known here."""
    for parts, ext_bytes, has_values in product(KINDS, EXT_BYTES, (True, False)):
        reader = _Reader(state)
        guess = StateShape(parts, ext_bytes, has_values, ())
        try:
            for kind in parts:
                _part(reader, kind, guess)
            shape = StateShape(parts, ext_bytes, has_values, tuple(reader.numbers))
            shape.check(state, np.arange(n_tokens))
        except Damaged:
            continue
        return shape
    return None


def _check_positions(positions: Positions, rows: Positions, n_cells: int | None) -> None:
    """Those of the last `n_cells` rows (None: of one at least), in any order."""
    n, n_rows = len(positions), len(rows)
    if n != n_cells and not (n_cells is None and 0 < n <= n_rows) and not (n_rows == 0 == n):
        raise Damaged("its state has not as many cells as it has tokens")
    if not np.array_equal(np.sort(positions), rows[n_rows - n :]):
        raise Damaged("its state has positions that do not belong to its tokens")


def _part(reader: _Reader, kind: str, shape: StateShape) -> Positions:
    return _kv(reader, shape) if kind == "kv" else _recurrent(reader)


def _kv(reader: _Reader, shape: StateShape) -> Positions:
    n_streams = reader.noted(4)
    positions: Positions = np.zeros(0, np.int64)
    for _ in range(min(n_streams, reader.left)):
        n_cells = reader.number(4)
        if n_cells and len(positions):
            raise Damaged("its state has the cells of two sequences")
        if n_cells:
            positions = _cells(reader, n_cells, 12 + shape.ext_bytes)
            _tensors(reader, n_cells, shape.has_values)
    return positions


def _cells(reader: _Reader, n_cells: int, size_bytes: int) -> Positions:
    cells = reader.take(n_cells * size_bytes).reshape(n_cells, size_bytes)
    positions, n_sequences = (np.ascontiguousarray(cells[:, at : at + 4]).view("<i4")[:, 0].astype(np.int64) for at in (0, 4))
    if (n_sequences != 1).any():
        raise Damaged("its state has cells of several sequences")
    return positions


def _tensors(reader: _Reader, n_cells: int, has_values: bool) -> None:
    is_transposed, n_layers = reader.noted(4), reader.noted(4)
    for _ in range(min(n_layers, reader.left)):
        reader.noted(4)
        reader.take(reader.noted(8) * n_cells)
    for _ in range(min(n_layers, reader.left) if has_values else 0):
        reader.noted(4)
        row_bytes = reader.noted(4) * reader.noted(4) if is_transposed else reader.noted(8)
        reader.take(row_bytes * n_cells)


def _recurrent(reader: _Reader) -> Positions:
    n_cells = reader.number(4)
    if n_cells > 1:
        raise Damaged("its state has more than one recurrent cell")
    positions = np.array([reader.number(4) for _ in range(n_cells)], np.int64)
    if n_cells and reader.number(4) != 0:
        raise Damaged("its state has cells of several sequences")
    reader.noted(4), reader.noted(4)
    while reader.left and n_cells:
        reader.noted(4)
        reader.take(reader.noted(8))
    return positions


class _Reader:
    """Behind the header; `numbers` are those that must be the same in every state of a context."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._at = STATE_HEADER_BYTES
        self.numbers: list[int] = []

    @property
    def left(self) -> int:
        return len(self._state) - self._at

    def take(self, size_bytes: int) -> State:
        if size_bytes > self.left:
            raise Damaged("its state ends before its last part")
        self._at += size_bytes
        return self._state[self._at - size_bytes : self._at]

    def number(self, size_bytes: int) -> int:
        return int.from_bytes(self.take(size_bytes).tobytes(), "little")

    def noted(self, size_bytes: int) -> int:
        value = self.number(size_bytes)
        self.numbers.append(value)
        return value
