"""How the threads of one computation wait for each other.

They meet some hundred times for each token.  A thread that spins until the others have come is fastest on an idle machine, and on a busy
one takes the time that they would need: with two threads on two cores under load, 1.3 tokens/s became 20 when spinning was bounded.
So a thread spins for about the time in which the others come if they run, then sleeps in the kernel.
"""

from __future__ import annotations

import os

SPINS = "1000"  # of GNU's OpenMP: some tens of microseconds
BOUNDS = {"GOMP_SPINCOUNT": SPINS, "KMP_BLOCKTIME": "0"}  # GNU's and LLVM's names


def bound_spinning() -> None:
    """Before the libraries are loaded, since OpenMP reads its environment once.  What the user has set stands."""
    if "OMP_WAIT_POLICY" not in os.environ:
        for name, value in BOUNDS.items():
            os.environ.setdefault(name, value)
