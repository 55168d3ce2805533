"""What each kind of memory can go back by itself, and what a snapshot of it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.rollback import Rollback, probe_memory

KINDS = {"tiny_llama": Rollback.PART, "tiny_gemma3": Rollback.PART, "tiny_mamba": Rollback.FULL, "tiny_jamba": Rollback.FULL}
Find = Callable[[str], Path]


@pytest.fixture
def tiny(request: pytest.FixtureRequest) -> Find:
    return lambda name: request.getfixturevalue(name)


@contextmanager
def context_of(path: Path, owner: int) -> Iterator[Context]:
    with Model.load(path, owner) as model:
        settings = {"n_ctx": 256, "n_seq_max": 2, "kv_unified": True, "threads": 1, "threads_batch": 1, "n_batch": 64, "n_ubatch": 32}
        with Context(model, owner, flash_attn="off", **settings) as context:  # type: ignore[arg-type]
            yield context


def logits(context: Context, tokens: list[int], start: int, sequence: int = 0) -> np.ndarray:
    """(n_vocab,) float32, after these tokens from position `start` on."""
    n = len(tokens)
    outputs = np.zeros(n, np.int8)
    outputs[-1] = 1
    positions = np.arange(start, start + n, dtype=np.int32)
    step = context.step(
        np.array(tokens, np.int32), positions, np.full(n, sequence, np.int32), outputs, np.array([n - 1], np.int32), logits=True
    )
    assert step.code == 0 and step.logits is not None
    return step.logits[0]


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_the_probe_knows_each_kind_of_memory(name: str, kind: Rollback, tiny: Find, owner: int) -> None:
    """S11: decode 2 tokens and try a partial seq_rm; the memory is as empty as before."""
    with context_of(tiny(name), owner) as context:
        assert probe_memory(context).rollback is kind
        assert context.seq_pos_max(0) == -1


@pytest.mark.parametrize("name", ["tiny_gemma3", "tiny_mamba", "tiny_jamba"])
def test_a_snapshot_continues_as_if_nothing_had_come_after_it(name: str, tiny: Find, owner: int) -> None:
    """S11: PARTIAL_ONLY state of 40 tokens, 30 more, back: the logits of what follows are the same bits."""
    first, detour, then = list(range(3, 43)), list(range(50, 80)), [7, 8, 9]
    with context_of(tiny(name), owner) as context:
        logits(context, first, 0)
        expected = logits(context, then, 40)
        context.memory_clear()
        logits(context, first, 0)
        snapshot = context.sequence_state(0, partial=True)
        logits(context, detour, 40)
        assert context.set_sequence_state(0, snapshot, partial=True)
        assert context.seq_rm(0, 40)
        assert np.array_equal(logits(context, then, 40), expected)


def test_the_size_of_a_state_is_known_before_it_is_copied(tiny_llama: Path, owner: int) -> None:
    """D.2 --cache-ram: what does not fit is not copied."""
    with context_of(tiny_llama, owner) as context:
        logits(context, [3, 4, 5], 0)
        assert context.sequence_state_size(0) == len(context.sequence_state(0))
