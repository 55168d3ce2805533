"""The same tests for both kinds of device: one whose memory comes back where it was, and one where it comes back elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lsm.native.library import lib


@pytest.fixture(params=["fixed", "moving"])
def addresses(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use it before anything is loaded. Where they move, given-up addresses are forbidden: whoever kept one ends the process."""
    lib.lsm_device_let_cpu_buffers_move(request.param == "moving")
    yield request.param
    lib.lsm_device_let_cpu_buffers_move(0)
