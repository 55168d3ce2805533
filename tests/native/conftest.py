"""The same tests for each kind of device: its memory comes back where it was, or elsewhere, or is reached through a copy engine only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsm.native.library import lib


@pytest.fixture(params=["fixed", "moving", "by_engine"])
def addresses(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use it before anything is loaded. Where they move, given-up addresses are forbidden: whoever kept one ends the process."""
    lib.lsm_device_let_cpu_buffers_move(request.param == "moving")
    lib.lsm_device_reach_cpu_by_engine(request.param == "by_engine")
    yield request.param
    lib.lsm_device_let_cpu_buffers_move(0)
    lib.lsm_device_reach_cpu_by_engine(0)
