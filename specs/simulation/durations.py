"""The longest that anything on the simulated device takes, in seconds.  Chance draws from nearly nothing up to these."""

from __future__ import annotations

BATCH_MAX_S = 0.1875
RELEASE_MAX_S = 0.0625  # of one class
RESTORE_MAX_S = 0.5
LOAD_MAX_S = 1.0
BUSY_MAX_S = 0.0625  # that an owner comes late to one event
