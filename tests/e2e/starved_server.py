"""`lsm-server` whose device has no room when a file says so: `python -m tests.e2e.starved_server FILE flags...`

While FILE exists, each move of device memory fails as it says, in two words: a fault point of the shim (MAP, FILL, SAVE), and how many
passages of it go well before.  A wake is tried once, so that nobody has to wait for the retries.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lsm_cli.server import run

import lsm.runtime.owner
from lsm.native.library import lib
from lsm.native.memory import DeviceMemory

POINTS = {"MAP": lib.LSM_FAULT_MAP, "FILL": lib.LSM_FAULT_FILL, "SAVE": lib.LSM_FAULT_SAVE}


def starve(orders: Path) -> None:
    restore, release = DeviceMemory.restore, DeviceMemory.release

    def arm() -> None:
        for point in POINTS.values():
            lib.lsm_device_fail_at(point, -1)
        if orders.exists():
            point, n = orders.read_text().split()
            lib.lsm_device_fail_at(POINTS[point], int(n))

    def restore_starved(self: DeviceMemory, *classes: str) -> None:
        arm()
        restore(self, *classes)

    def release_starved(self: DeviceMemory, *classes: str) -> None:
        arm()
        release(self, *classes)

    DeviceMemory.restore = restore_starved  # type: ignore[method-assign]
    DeviceMemory.release = release_starved  # type: ignore[method-assign]


if __name__ == "__main__":
    starve(Path(sys.argv[1]))
    lsm.runtime.owner.MAP_ATTEMPTS = 1
    sys.exit(run(sys.argv[2:], os.environ))
