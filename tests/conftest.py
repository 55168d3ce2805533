"""Models for all rooms: small real ones that the test set-up pulled, tiny random ones that are written on the spot."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models
from tests.edges import edges_follow_from_their_tables, pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown

__all__ = ["edges_follow_from_their_tables", "pytest_sessionfinish", "pytest_terminal_summary", "pytest_testnodedown"]  # for pytest

REAL_MODELS = {
    "smollm2": "smollm2-135m-instruct-q4_1.gguf",
    "gemma3": "gemma-3-270m-q4_k_m.gguf",
}
_owners = itertools.count(1)


def models_dir() -> Path:
    return Path(os.environ.get("LSM_MODELS_DIR", Path.home() / ".cache/lsm-server/models"))


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """`real_model("smollm2")`, `real_model("gemma3")`: the path of a GGUF file."""

    def find(name: str) -> Path:
        path = models_dir() / REAL_MODELS[name]
        if not path.exists():
            pytest.fail(f"{path} is missing: pull it ('lsm pull {name}') or set LSM_MODELS_DIR to the folder that has it")
        return path

    return find


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_llama(tmp_path_factory.mktemp("tiny") / "llama.gguf")


@pytest.fixture(scope="session")
def tiny_gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_gemma3(tmp_path_factory.mktemp("tiny") / "gemma3.gguf")


@pytest.fixture(scope="session")
def tiny_mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_mamba(tmp_path_factory.mktemp("tiny") / "mamba.gguf")


@pytest.fixture(scope="session")
def tiny_jamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write_jamba(tmp_path_factory.mktemp("tiny") / "jamba.gguf")


@pytest.fixture
def owner() -> int:
    """An owner of device memory that no other test of this process has."""
    return next(_owners)
