"""How many threads a computation should have where nobody said, and where they may run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from lsm.tuning import PRIORITIES

log = logging.getLogger("lsm.engine")

SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def usable_cores(cpus: frozenset[int] = frozenset()) -> int:
    """Physical cores that this process may run on, of `cpus` if there are any: two threads on one core only get in each other's way."""
    usable = os.sched_getaffinity(0)
    return count_cores(usable & cpus or usable, _read_siblings)


def settle_thread(cpus: frozenset[int], prio: int) -> None:
    """Give this thread, and so every thread that it starts from now on, its CPUs (none: as it is) and a key of PRIORITIES.

    What the system refuses is logged with the remedy; the thread then stays as it is.
    """
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            log.warning("--cpu-mask, --cpu-range: cannot compute on CPUs %s: %s; computing on all", sorted(cpus), error.strerror)
    if PRIORITIES[prio]:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITIES[prio])  # of the calling thread alone, on Linux
        except OSError as error:
            log.warning("--prio %d: %s; raising a priority needs root, or a limit on `nice` that allows it", prio, error.strerror)


def count_cores(cpus: Iterable[int], siblings_of: Callable[[int], str]) -> int:
    """How many different cores the CPUs are on.  `siblings_of` tells, in the kernel's notation, the CPUs that share a core with one;
    where it says nothing, each CPU counts as a core."""
    return len({siblings_of(cpu) or str(cpu) for cpu in cpus}) or 1


def _read_siblings(cpu: int) -> str:
    try:
        return Path(SIBLINGS.format(cpu)).read_text().strip()
    except OSError:
        return ""
