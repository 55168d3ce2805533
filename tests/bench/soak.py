"""Servers take turns on one device while they are killed, frozen, cut off and contended with: `python -m tests.bench.soak`.

Every answer is compared, token for token, with that of an undisturbed server; a witness watches memory and locks in the kernel's books;
the trace of the whole run is checked.  Exits with 1 if anything was wrong.  The seed decides what is tried, not how the kernel schedules
it: a failure may need some runs to come again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[2, 3], help="a run for each of these numbers (default: 2 3)")
    parser.add_argument("--handoffs", type=int, default=1000, help="of each run (default: 1000)")
    parser.add_argument("--seconds", type=float, default=600, help="a run ends after this long in any case (default: 600)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: a new one, which is printed")
    parser.add_argument("--keep", type=Path, help="a folder for models and traces, which stay there")
    options = parser.parse_args()
    failed = False
    for servers in options.servers:
        print(f"{servers} servers, {options.handoffs} handoffs, seed {options.seed}", flush=True)
        with _folder(options.keep, f"{servers}-servers") as folder:
            report = soak(folder, servers, options.handoffs, options.seconds, options.seed)
        print(report, flush=True)
        failed |= report.failed
    return int(failed)


@contextmanager
def _folder(keep: Path | None, name: str) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    else:
        (keep / name).mkdir(parents=True)
        yield keep / name


if __name__ == "__main__":
    sys.exit(main())
