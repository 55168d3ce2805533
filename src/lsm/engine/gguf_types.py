"""The value types of GGUF metadata, and the block sizes of ggml's tensor types."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from lsm.engine.gguf_reader import Cursor, Damaged

STRING = 8
ARRAY = 9
MAX_STRING_BYTES = 16 << 20
MAX_ARRAY_LENGTH = 1 << 24  # a vocabulary has some 2**18 entries
KEPT_ARRAY_LENGTH = 512  # one value for each layer
MAX_TOKENS = 1 << 22
TOKENS = "tokenizer.ggml.tokens"
TOKEN_TYPES = "tokenizer.ggml.token_type"
BOOL = 7

_SCALARS: Mapping[int, tuple[str, struct.Struct]] = {
    0: ("u8", struct.Struct("<B")),
    1: ("i8", struct.Struct("<b")),
    2: ("u16", struct.Struct("<H")),
    3: ("i16", struct.Struct("<h")),
    4: ("u32", struct.Struct("<I")),
    5: ("i32", struct.Struct("<i")),
    6: ("f32", struct.Struct("<f")),
    7: ("bool", struct.Struct("<?")),
    10: ("u64", struct.Struct("<Q")),
    11: ("i64", struct.Struct("<q")),
    12: ("f64", struct.Struct("<d")),
}

BLOCKS: Mapping[int, tuple[int, int]] = {  # ggml type -> (elements, bytes) of a block
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
    42: (64, 18),  # Q2_0
}


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """An array that is too long to be kept: the type of its elements, and how many there are.

    `n_distinct` is known of the tokens, `kinds` of their types.
    """

    type_name: str
    length: int
    n_distinct: int = -1
    kinds: frozenset[int] = frozenset()


Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...] | ArraySummary


def read_value(cursor: Cursor, key: str) -> Value:
    type_id = cursor.uint32()
    if type_id != ARRAY:
        return _scalar(cursor, type_id, key)
    element_type = cursor.uint32()
    length = cursor.uint64()
    if element_type == ARRAY:
        raise Damaged(f"has an array of arrays under the key {key!r}, which GGUF does not have. The file is damaged: download it again")
    if length > MAX_ARRAY_LENGTH:
        claim = f"claims {length} elements under the key {key!r}, at most {MAX_ARRAY_LENGTH} are read"
        raise Damaged(f"{claim}. The file is damaged: download it again")
    if key == TOKENS and element_type == STRING:
        return _tokens(cursor, length)
    if length <= KEPT_ARRAY_LENGTH:
        return tuple(_scalar(cursor, element_type, key) for _ in range(length))
    return _skipped_array(cursor, element_type, length, key)


def _scalar(cursor: Cursor, type_id: int, key: str) -> Scalar:
    if type_id == STRING:
        return cursor.text(MAX_STRING_BYTES, f"a string under the key {key!r}")
    return cursor.unpack(_layout(type_id, key)[1])


def _skipped_array(cursor: Cursor, type_id: int, length: int, key: str) -> ArraySummary:
    if type_id == STRING:
        for _ in cursor.strings(length):
            pass
        return ArraySummary("str", length)
    name, layout = _layout(type_id, key)
    if key == TOKEN_TYPES and length <= MAX_TOKENS:
        return ArraySummary(name, length, kinds=frozenset(kind for (kind,) in layout.iter_unpack(cursor.take(length * layout.size))))
    cursor.skip(length * layout.size)
    return ArraySummary(name, length)


def _tokens(cursor: Cursor, length: int) -> ArraySummary:
    """llama.cpp ends a token at its first zero byte, and gives each empty one a name of its own."""
    if length > MAX_TOKENS:
        raise Damaged(f"has {length} tokens, at most {MAX_TOKENS} are read. The file is damaged: download it again")
    seen: set[bytes] = set()
    n_empty = 0
    for content in cursor.strings(length):
        token = content.partition(b"\0")[0]
        n_empty += not token
        seen.add(token)
    return ArraySummary("str", length, n_distinct=len(seen - {b""}) + n_empty)


def _layout(type_id: int, key: str) -> tuple[str, struct.Struct]:
    if type_id not in _SCALARS:
        raise Damaged(f"has a value of the unknown type {type_id} under the key {key!r}. The file is damaged: download it again")
    return _SCALARS[type_id]
