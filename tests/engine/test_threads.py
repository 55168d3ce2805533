"""Threads where nobody said how many."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lsm.engine.config import EngineConfig
from lsm.engine.threads import count_cores, settle_thread, usable_cores


def test_two_threads_of_a_core_count_once() -> None:
    """C.2 threads -1: physical cores that the process may use."""
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}
    assert count_cores({0, 1, 4, 5}, siblings.__getitem__) == 2
    assert count_cores({0, 4}, siblings.__getitem__) == 1
    assert count_cores({0, 5}, siblings.__getitem__) == 2


def test_without_topology_each_cpu_is_a_core() -> None:
    """C.2 threads -1: containers may hide /sys."""
    assert count_cores({0, 1, 2}, lambda cpu: "") == 3
    assert count_cores((), lambda cpu: "") == 1


def test_threads_for_prompts_follow_those_for_generation() -> None:
    """C.2 threads_batch -1: the same."""
    path = Path("m.gguf")
    assert EngineConfig(path=path).n_threads == EngineConfig(path=path).n_threads_batch == usable_cores()
    assert EngineConfig(path=path, threads=3).n_threads_batch == 3
    assert EngineConfig(path=path, threads=3, threads_batch=5).n_threads_batch == 5


def test_four_slots_over_one_cache_where_nobody_said() -> None:
    """S18, C.2: -np -1 is 4 and unified; a number is that many, each with its own part."""
    path = Path("m.gguf")
    assert (EngineConfig(path=path).n_slots, EngineConfig(path=path).shares_cells) == (4, True)
    assert (EngineConfig(path=path, n_parallel=2).n_slots, EngineConfig(path=path, n_parallel=2).shares_cells) == (2, False)
    assert EngineConfig(path=path, n_parallel=2, kv_unified=True).shares_cells
    assert not EngineConfig(path=path, kv_unified=False).shares_cells


def test_a_thread_and_what_it_starts_keep_to_their_cpus() -> None:
    """C.2: --cpu-mask and --prio are of the engine's threads alone, and those that it starts inherit them."""
    before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    one = frozenset({min(before[0])})
    seen: list[tuple[set[int], int]] = []

    def look() -> None:
        seen.append((os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)))

    def settle() -> None:
        settle_thread(one, -1)
        look()
        child = threading.Thread(target=look)
        child.start()
        child.join()

    thread = threading.Thread(target=settle)
    thread.start()
    thread.join()
    assert seen == [(one, before[1] + 5)] * 2
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_cpus_that_there_are_not_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """C.2: the model is served all the same, on all CPUs."""
    before = os.sched_getaffinity(0)
    settle_thread(frozenset({511}), 0)
    assert os.sched_getaffinity(0) == before
    assert "cannot compute on CPUs [511]" in caplog.text


def test_cores_are_counted_within_the_mask() -> None:
    """C.2: as many threads as there are cores to run them."""
    assert usable_cores(frozenset({min(os.sched_getaffinity(0))})) == 1
