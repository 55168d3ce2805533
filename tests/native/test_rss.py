"""What is released is really gone, as the kernel counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models


def measure(path: Path, n_ctx: int, addresses: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.native.measure_rss", str(path), str(n_ctx), addresses]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def check_that_both_leave_and_come_back(rss: dict[str, int]) -> None:
    assert rss["kv_used"] >= 0.75 * rss["kv"]  # else the check of it would be idle
    assert rss["loaded"] - rss["without_weights"] >= 0.9 * rss["weights"]
    assert rss["without_weights"] - rss["without_kv"] >= 0.9 * rss["kv_used"]
    assert rss["loaded"] - rss["without_kv"] >= 0.9 * (rss["weights"] + rss["kv_used"])
    assert rss["back"] - rss["without_kv"] >= 0.9 * (rss["weights"] + rss["kv_used"])


@pytest.mark.slow
@pytest.mark.parametrize("addresses", ["fixed", "moving"])
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_weights_and_a_used_cache_leave_the_process(real_model: Callable[[str], Path], name: str, addresses: str) -> None:
    """S9, S10: at least 90 % of their bytes, plain and repacked weights alike, and they come back."""
    check_that_both_leave_and_come_back(measure(real_model(name), 512, addresses))


@pytest.mark.slow
@pytest.mark.parametrize("addresses", ["fixed", "moving"])
def test_a_cache_larger_than_the_weights_leaves_the_process(tmp_path: Path, addresses: str) -> None:
    """S9: no copy of it stays in the memory of the process."""
    rss = measure(tiny_models.write_llama(tmp_path / "model.gguf", n_layer=8), 2048, addresses)
    assert rss["kv"] >= max(16 << 20, rss["weights"])
    assert rss["without_weights"] - rss["without_kv"] >= 0.9 * rss["kv"]
    assert rss["back"] - rss["without_kv"] >= 0.9 * (rss["weights"] + rss["kv"])
