"""How often an idle server wakes up: `python -m tests.bench.idle --seconds 20`.

Two servers on one arena; one holds the device, the other sleeps; nobody asks anything.  Printed are the context switches of each thread, as
the kernel counts them.  Expected: none for the sleeper, one each five seconds for the holder (its look in case a ring was lost).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import REAL_MODELS, models_dir
from tests.e2e.servers import Server

SETTLE_S = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to watch (default: 20)")
    options = parser.parse_args()
    with ExitStack() as stack:
        arena = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "arena"
        servers = [stack.enter_context(Server(arena, models_dir() / file, name)) for name, file in REAL_MODELS.items()]
        sleeper, holder = servers
        holder.ask("Hello")
        sleeper.until_state("token", "asleep")
        time.sleep(SETTLE_S)
        before = [switches(server.pid) for server in servers]
        time.sleep(options.seconds)
        after = [switches(server.pid) for server in servers]
    for what, first, last in zip(("sleeper", "holder"), before, after, strict=True):
        print(f"{what}: {sum(last.values()) - sum(first.values())} wake-ups of {len(last)} threads in {options.seconds:.0f} s")


def switches(pid: int) -> dict[str, int]:
    """Context switches of each thread so far."""
    return {task.name: _switches_of(task / "status") for task in Path(f"/proc/{pid}/task").iterdir()}


def _switches_of(status: Path) -> int:
    return sum(int(line.split()[1]) for line in status.read_text().splitlines() if "ctxt_switches" in line)


if __name__ == "__main__":
    main()
