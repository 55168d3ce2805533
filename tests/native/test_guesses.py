"""Several tokens of one sequence verified in one step, and the memory of two models moved as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lsm.errors import DeviceMemoryError, InvalidRequest, ModelFileError
from lsm.native.context import NOT_REACHED, Context, Step
from lsm.native.joint_memory import JointMemory
from lsm.native.library import lib
from lsm.native.model import Model
from lsm.native.sampler import Sampler
from lsm.native.vocab import Tokens
from tests.native.runner import open_context

START = (20, 30, 40)
CLASSES = ("weights", "kv", "compute")


@pytest.fixture
def model(tiny_llama: Path, owner: int) -> Iterator[Model]:
    with Model.load(tiny_llama, owner) as model:
        yield model


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    with open_context(model, n_outputs_max=8, flash_attn="off") as context:
        yield context


def verify(
    model: Model, context: Context, guesses: list[int], *, forced: int = 0, grammar: str = "", sampler: Sampler | None = None
) -> Step:
    """The last of START, then the guesses, after the others."""
    context.memory_clear()
    tokens = np.array([*START, *guesses], np.int32)
    n, first = len(tokens), len(START) - 1
    rows, outputs = np.arange(first, n, dtype=np.int32), (np.arange(n) >= first).astype(np.int8)
    marks = np.array([i < forced for i in range(len(rows))], np.int8) if forced else None
    own = sampler or Sampler(model.vocab, [("greedy", {})], grammar=grammar)
    try:
        return context.step(
            tokens, np.arange(n, dtype=np.int32), np.zeros(n, np.int32), outputs, rows, [own] * len(rows),
            drafted=np.array([*guesses, -1], np.int32), forced=marks,
        )  # fmt: skip
    finally:
        if sampler is None:
            own.close()


def continuation(model: Model, context: Context, n: int) -> list[int]:
    answer: list[int] = []
    for _ in range(n):
        answer.append(int(verify(model, context, answer, forced=len(answer)).sampled[-1]))
    return answer


@pytest.mark.parametrize("n_right", [0, 1, 2, 3])
def test_rows_are_sampled_while_the_guesses_are_right(model: Model, context: Context, n_right: int) -> None:
    """S19: the token after the last right guess is the model's own; what stands on a wrong one is left alone."""
    right = continuation(model, context, 4)
    guesses = [token if i < n_right else (token + 1) % 256 + 3 for i, token in enumerate(right[:3])]
    sampled = verify(model, context, guesses).sampled.tolist()
    assert sampled == [*right[: n_right + 1], *[NOT_REACHED] * (3 - n_right)]


def test_forced_guesses_stand_whatever_is_drawn(model: Model, context: Context) -> None:
    """S19: the step tells the guess, and goes on to the next row."""
    assert verify(model, context, [7, 8], forced=2).sampled.tolist()[:2] == [7, 8]


def test_a_grammar_is_not_told_of_forced_guesses(model: Model, context: Context) -> None:
    """S19: they do not advance it: behind two of them it still wants its beginning."""
    x, y = (int(model.vocab.tokenize(letter, False, False)[0]) for letter in "xy")
    assert verify(model, context, [x, y], grammar='root ::= "xyz"').sampled.tolist()[:2] == [x, y]
    assert verify(model, context, [y, y], forced=2, grammar='root ::= "xyz"').sampled.tolist() == [y, y, x]


def test_who_looks_at_each_token_goes_on_by_himself(model: Model, context: Context) -> None:
    """B.2 n_probs: an observed sampler stops after the first row, right or not."""
    right = continuation(model, context, 3)
    with Sampler(model.vocab, [("greedy", {})]) as sampler:
        observed = sampler.observe(1, after_chain=False)
        assert verify(model, context, right[:2], sampler=sampler).sampled.tolist() == [right[0], NOT_REACHED, NOT_REACHED]
        assert observed.top[0][0] == right[0]
        assert sampler.sample(context, len(START)) == right[1]


def test_as_many_guesses_as_rows(model: Model, context: Context) -> None:
    """B.0: or -1 where there is none."""
    one: Tokens = np.zeros(1, np.int32)
    with Sampler(model.vocab, [("greedy", {})]) as sampler, pytest.raises(InvalidRequest, match="for each row"):
        context.step(one, one, one, np.ones(1, np.int8), one, [sampler], drafted=one[:0])


@pytest.fixture
def two(tiny_llama: Path, owner: int) -> Iterator[JointMemory]:
    other = owner + 1_000_000
    with Model.load(tiny_llama, owner) as first, Model.load(tiny_llama, other) as second, open_context(first), open_context(second):
        yield JointMemory(owner, other)
    for point in (lib.LSM_FAULT_MAP, lib.LSM_FAULT_FILL, lib.LSM_FAULT_SAVE):
        lib.lsm_device_fail_at(point, -1)


def places(memory: JointMemory) -> list[bool]:
    return [memory.resident(name) for name in CLASSES]


def test_two_models_leave_and_return_as_one(two: JointMemory, tiny_llama: Path) -> None:
    """S10: bytes are those of both; nothing of either stays."""
    before = {name: two.bytes(name) for name in CLASSES}
    assert before["weights"].device > tiny_llama.stat().st_size
    for _ in range(3):
        two.release(*CLASSES)
        assert places(two) == [False] * 3 and sum(two.bytes(name).device for name in CLASSES) == 0
        two.restore(*CLASSES)
        assert places(two) == [True] * 3
    assert {name: two.bytes(name).device for name in CLASSES} == {name: bytes.device for name, bytes in before.items()}


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("point", ["LSM_FAULT_MAP", "LSM_FAULT_FILL"])
def test_what_one_cannot_do_is_undone_for_the_other(two: JointMemory, point: str) -> None:
    """S10: a restore fails at each buffer of both in turn; each time both are as before, until it gets through."""
    n_failed = 0
    while True:
        two.release(*CLASSES)
        lib.lsm_device_fail_at(getattr(lib, point), n_failed)
        try:
            two.restore(*CLASSES)
        except (DeviceMemoryError, ModelFileError):
            n_failed += 1
            assert sum(two.bytes(name).device for name in CLASSES) == 0
        else:
            break
    assert n_failed > 2
    assert places(two) == [True] * 3
