"""How many threads a computation should have where nobody said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_cores() -> int:
    """Physical cores that this process may run on: two threads on one core only get in each other's way."""
    return count_cores(os.sched_getaffinity(0), _read_siblings)


def count_cores(cpus: Iterable[int], siblings_of: Callable[[int], str]) -> int:
    """How many different cores the CPUs are on.  `siblings_of` tells, in the kernel's notation, the CPUs that share a core with one;
    where it says nothing, each CPU counts as a core."""
    return len({siblings_of(cpu) or str(cpu) for cpu in cpus}) or 1


def _read_siblings(cpu: int) -> str:
    try:
        return Path(SIBLINGS.format(cpu)).read_text().strip()
    except OSError:
        return ""
