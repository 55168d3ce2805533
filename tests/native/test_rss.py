"""What is released is really gone, as the kernel counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models


def measure(path: Path, n_ctx: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.native.measure_rss", str(path), str(n_ctx)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_weights_leave_the_process(real_model: Callable[[str], Path], name: str) -> None:
    """S10: at least 90 % of their bytes, plain and repacked alike, and they come back."""
    rss = measure(real_model(name), 64)
    assert rss["loaded"] - rss["without_weights"] >= 0.9 * rss["weights"]
    assert rss["back"] - rss["cleared"] >= 0.9 * rss["weights"]


@pytest.mark.slow
def test_kv_leaves_the_device_and_its_copies_leave_when_cleared(tmp_path: Path) -> None:
    """S9: a full cache moves to copies of its size (on a GPU: out of its memory); one that was cleared takes no memory at all."""
    rss = measure(tiny_models.write_llama(tmp_path / "model.gguf", n_layer=8), 2048)
    assert rss["kv"] >= 16 << 20
    assert 0.9 * rss["kv"] <= rss["kv_copies"] <= rss["kv"]
    assert abs(rss["without_kv"] - rss["without_weights"]) <= 0.1 * rss["kv"]
    assert rss["without_kv"] - rss["cleared"] >= 0.9 * rss["kv"]
