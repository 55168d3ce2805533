"""States that nobody vouches for are compared with those of the context before llama.cpp reads them (S31)."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import numpy as np
import pytest

from lsm.engine.engine import Engine
from lsm.engine.outputs import Ended
from lsm.engine.slot_content import LoadSlot, SaveSlot, SlotContent
from lsm.engine.slot_file import Damaged
from lsm.engine.state_shape import StateShape, learn_shape
from tests.engine.loaded import loaded, run, submit
from tests.engine.scripted import end, result

PROMPT = np.array([3 + i * 7 % 300 for i in range(40)], np.int32)
PARTS = {
    "tiny_llama": ("kv",),
    "tiny_gemma3": ("kv", "kv"),
    "tiny_mamba": ("recurrent",),
    "tiny_jamba": ("kv", "recurrent"),
}


def saved(engine: Engine) -> SlotContent:
    submit(engine, "a", PROMPT, max_tokens=1, id_slot=0)
    run(engine)
    engine.submit(SaveSlot("save", 0))
    ended = end(run(engine), "save")
    assert isinstance(ended, Ended)
    content: SlotContent = ended.finish.content  # type: ignore[union-attr,assignment]
    return content


def shape_of(engine: Engine) -> StateShape:
    assert engine._scheduler is not None
    shape = engine._scheduler._limits.state_shape
    assert shape is not None
    return shape


@pytest.mark.parametrize(("name", "parts"), PARTS.items())
@pytest.mark.parametrize("kv_unified", [True, False])
@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_each_kind_of_memory_is_known(
    name: str, parts: tuple[str, ...], kv_unified: bool, flash_attn: str, owner: int, request: pytest.FixtureRequest
) -> None:
    """S31: with one cache for all slots or one for each, with values transposed or not."""
    with loaded(request.getfixturevalue(name), owner, kv_unified=kv_unified, flash_attn=flash_attn) as engine:
        content, shape = saved(engine), shape_of(engine)
    shape.check(content.state, np.arange(len(PROMPT)))
    assert shape.parts == parts
    for n_tokens in (0, len(PROMPT) - 1, len(PROMPT) + 1):
        with pytest.raises(Damaged):
            shape.check(content.state, np.arange(n_tokens))


@pytest.mark.parametrize("name", PARTS)
def test_no_bytes_harm_a_slot(name: str, owner: int, request: pytest.FixtureRequest) -> None:
    """S31: fuzz: numbers between the weights changed, ends cut off: refused or read, and the next request is served as ever."""
    randoms = random.Random(name)
    with loaded(request.getfixturevalue(name), owner) as engine:
        content = saved(engine)
        for _ in range(60):
            state = content.state.copy()
            at = randoms.randrange(8, min(len(state), 700)) // 4 * 4
            state[at : at + 4] = np.frombuffer(struct.pack("<i", randoms.choice((-1, 0, 1, 2**31 - 1, -(2**31), 39, 1000))), np.uint8)
            if randoms.random() < 0.2:
                state = state[: randoms.randrange(8, len(state))].copy()
            engine.submit(LoadSlot("load", 1, replace(content, state=state), is_sound=False))
            run(engine)
            submit(engine, "next", PROMPT, max_tokens=1, id_slot=1)
            assert result(run(engine), "next")[1].prompt_tokens == len(PROMPT)


def kv(positions: list[int], ext: bytes = b"", streams: int = 1, sequences: int = 1) -> bytes:
    """One layer, rows of 4 bytes, not transposed."""
    cells = b"".join(struct.pack("<iI", position, sequences) + ext + struct.pack("<i", 0) for position in positions)
    rows = struct.pack("<iQ", 1, 4) + bytes(4 * len(positions))
    tensors = struct.pack("<II", 0, 1) + rows + rows
    return struct.pack("<II", streams, len(positions)) + cells + (tensors if positions else b"") + bytes(4 * (streams - 1))


def state(*parts: bytes) -> np.ndarray:
    return np.frombuffer(bytes(8) + b"".join(parts), np.uint8)


def test_what_stands_beside_a_position_is_known() -> None:
    """S31: M-RoPE keeps 12 bytes more of each cell."""
    shape = learn_shape(state(kv([0, 1], bytes(12))), 2)
    assert shape is not None and (shape.parts, shape.ext_bytes) == (("kv",), 12)
    shape.check(state(kv([2, 0, 1], bytes(12))), np.arange(3))


@pytest.mark.parametrize(
    "bad",
    [
        kv([0, 1, 1]),
        kv([0, 1, 3]),
        kv([0, 1, -1]),
        kv([0, 1]),
        kv([0, 1, 2, 3]),
        kv([]),
        kv([0, 1, 2], sequences=2),
        kv([0, 1, 2], streams=2),
        kv([0, 1, 2]) + b"\0",
        kv([0, 1, 2])[:-1],
        kv([0, 1, 2]).replace(struct.pack("<iQ", 1, 4), struct.pack("<iQ", 2, 4)),
        struct.pack("<II", 2**32 - 1, 2**32 - 1),
    ],
)
def test_what_is_not_of_three_tokens_of_this_context_is_refused(bad: bytes) -> None:
    """F11: positions, counts, types, sizes."""
    shape = learn_shape(state(kv([0, 1])), 2)
    assert shape is not None
    shape.check(state(kv([0, 1, 2])), np.arange(3))
    with pytest.raises(Damaged):
        shape.check(state(bad), np.arange(3))


def test_an_empty_slot_is_a_state_too() -> None:
    """S31: llama-server saves them."""
    shape = learn_shape(state(kv([0, 1])), 2)
    assert shape is not None
    shape.check(state(kv([])), np.arange(0))
    with pytest.raises(Damaged):
        shape.check(state(kv([0])), np.arange(0))


def test_a_kind_that_is_not_known_is_not_guessed() -> None:
    """S31: then only files with a digest are read."""
    assert learn_shape(state(b"something else"), 2) is None
