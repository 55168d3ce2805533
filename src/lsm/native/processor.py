"""Whether this processor can run the CPU backend as it was built, and what to do where it cannot.

The compiled part may have moved since it was built: a wheel copied to an older machine, a virtual machine on another host. An illegal
instruction cannot be caught, so a program of its own, built for the same instruction sets, tries one of each first. This takes 1 ms.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
from pathlib import Path

SELF_TEST_TIMEOUT_S = 10.0

log = logging.getLogger("lsm.native")


def self_test_failure(program: Path) -> str | None:
    """Run the self-test; None if this processor can run the CPU backend, else why it is thought that it cannot."""
    try:
        done = subprocess.run([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SELF_TEST_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the self-test of the usual one could not be run ({error})"
    if done.returncode == -signal.SIGILL:
        return "this processor cannot run an instruction that the usual one was built to use"
    return None if done.stdout == b"ok" else f"the self-test of the usual one ended with status {done.returncode}"


def preload_baseline(directory: Path) -> bool:
    """Map the baseline CPU backend if the usual one could crash here; whether it was mapped. Logs one warning.

    Its SONAME is that of the usual one, so the dynamic linker takes it for the library that libggml asks for afterwards.
    """
    baseline = next((directory / "baseline").glob("libggml-cpu.so*"), None)
    if baseline is None:
        return False  # not built for x86-64: ggml's own choice for the architecture stands
    reason = self_test_failure(directory / "cpu-self-test")
    if reason is None:
        return False
    # Local on purpose: SONAMEs match all the same, and no other ggml in this process shall find our symbols.
    ctypes.CDLL(str(baseline), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    log.warning("The baseline CPU backend is used, which is slower: %s. Install lsm-server on this machine to build one for it.", reason)
    return True
