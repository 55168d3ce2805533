"""A short soak of three real servers; `python -m tests.bench.soak` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.run import soak

pytestmark = pytest.mark.slow


def test_nobody_is_stranded_nothing_is_doubled_no_token_is_wrong(tmp_path: Path) -> None:
    """Real soak: three servers, kill -9, SIGSTOP, disconnects and contention, then everybody is served; the trace is checked."""
    report = soak(tmp_path, servers=3, handoffs=60, seconds=60, seed=random.randrange(1 << 32))
    assert not report.failed, str(report)
    assert report.handoffs >= 20, str(report)  # whatever else this machine does
    assert report.counts["kills"] and report.counts["answers compared"], str(report)
