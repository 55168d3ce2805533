"""S18: from the arguments to the size of the cache and of a slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.batching import Batching
from lsm.engine.config import EngineConfig
from lsm.engine.sizes import pool_size, slot_size

N_CTX_TRAIN = 4096


@pytest.mark.parametrize(
    ("n_ctx", "n_parallel", "kv_unified", "per_slot", "pool", "slot"),
    [
        (0, -1, None, 0, 4096, 4096),  # as trained, shared by four
        (0, -1, None, 64, 256, 64),  # the pool has room for all
        (0, 2, None, 64, 128, 64),  # two separate parts
        (0, 2, True, 64, 128, 64),
        (1024, -1, None, 0, 1024, 1024),  # one alone may use all of it
        (1024, -1, None, 512, 1024, 512),  # promised twice over
        (1024, 2, None, 0, 1024, 512),  # equal parts
        (1024, 2, None, 256, 1024, 256),
        (1024, 2, None, 800, 1024, 512),  # no more than its part
        (1024, 2, True, 800, 1024, 800),
        (8192, 1, None, 0, 8192, 4096),  # none beyond the training
        (0, 2, True, 8192, 16384, 4096),
    ],
)
def test_sizes(n_ctx: int, n_parallel: int, kv_unified: bool | None, per_slot: int, pool: int, slot: int) -> None:
    """S18: (n_ctx, np, N) -> (pool, per-slot); -np auto is 4 with one cache, explicit -np leaves it divided unless -kvu."""
    batching = Batching(n_ctx_per_slot=per_slot)
    config = EngineConfig(path=Path("x"), n_ctx=n_ctx, n_parallel=n_parallel, kv_unified=kv_unified, batching=batching)
    n_pool = pool_size(config.n_ctx, config.n_slots, per_slot) or N_CTX_TRAIN
    n_reach = n_pool if config.shares_cells else n_pool // config.n_slots
    assert (n_pool, slot_size(n_reach, per_slot, N_CTX_TRAIN)) == (pool, slot)
