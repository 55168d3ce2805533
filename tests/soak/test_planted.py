"""The soak is awake: real servers with a mistake do not get through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import clients
from tests.soak.book import ALONE, DOUBLE, STRANDED, TRACE, WRONG
from tests.soak.run import soak

pytestmark = pytest.mark.slow

JUDGES = {"keep_weights": {DOUBLE, ALONE}, "lose_a_cell": {WRONG}, "forget_demand": {STRANDED}, "push_in": {TRACE}}


@pytest.mark.parametrize("mistake", JUDGES)
def test_a_planted_mistake_is_caught(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real soak: each judge (memory, tokens, patience, trace) finds what is there for it to find."""
    if mistake == "forget_demand":
        monkeypatch.setattr(clients, "PATIENCE_S", 4.0)
    report = soak(tmp_path, servers=2, handoffs=15, seconds=8, seed=1, program=("-m", "tests.soak.faulty_server", mistake))
    found = {kind for kind, _ in report.violations}
    assert found & JUDGES[mistake], str(report)
