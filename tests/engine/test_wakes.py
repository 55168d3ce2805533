"""S10: whatever fails in a wake, the requests under way are served afterwards, with the tokens of an undisturbed run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lsm.errors import LsmError
from lsm.native.library import lib
from tests import tiny_architectures, tiny_models
from tests.engine.loaded import loaded, step_through, submit
from tests.engine.scripted import tokens

ALL = ("weights", "kv", "compute")
PROMPT = list(range(10, 40))
WRITERS: dict[str, Callable[[Path], Path]] = {
    "llama": tiny_models.write_llama,
    "gemma3": tiny_models.write_gemma3,
    "mamba": tiny_models.write_mamba,
    "moe": tiny_architectures.write_moe,
    "hybrid": tiny_architectures.write_hybrid,
}


@pytest.fixture(autouse=True)
def disarm() -> Iterator[None]:
    yield
    for point in (lib.LSM_FAULT_MAP, lib.LSM_FAULT_FILL, lib.LSM_FAULT_SAVE):
        lib.lsm_device_fail_at(point, -1)


@pytest.mark.parametrize("point", ["MAP", "FILL", "SAVE"])
@pytest.mark.parametrize("architecture", sorted(WRITERS))
def test_a_failure_at_each_allocation_of_a_wake(tmp_path: Path, owner: int, architecture: str, point: str) -> None:
    """S10: after each token the model leaves and returns, and one allocation more goes well before one fails."""
    with loaded(WRITERS[architecture](tmp_path / "model.gguf"), owner) as engine:
        submit(engine, "undisturbed", PROMPT, max_tokens=12, cache_prompt=False)
        undisturbed = tokens(step_through(engine, lambda: None), "undisturbed")
        passages, failed = itertools.count(), []

        def leave_and_return() -> None:
            lib.lsm_device_fail_at(getattr(lib, f"LSM_FAULT_{point}"), next(passages))
            for move in (engine.memory.release, engine.memory.restore):
                try:
                    move(*ALL)
                except LsmError as error:
                    failed.append(type(error).__name__)
                    move(*ALL)

        submit(engine, "disturbed", PROMPT, max_tokens=12, cache_prompt=False)
        assert tokens(step_through(engine, leave_and_return), "disturbed") == undisturbed
        assert len(failed) >= (1 if point == "SAVE" else 3), failed
