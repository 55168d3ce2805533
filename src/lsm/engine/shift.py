"""Which tokens leave a full context.  Pure."""

from __future__ import annotations

N_FREE_MIN = 4  # positions that no `n_keep` can claim


def shift_range(n: int, n_ctx: int, n_keep: int, n_discard: int) -> tuple[int, int]:
    """(start, count) of the tokens to drop of `n` in a context of `n_ctx`: after `n_keep` of them, `n_discard`, or half of the rest if 0.

    One token stays at least beside those kept.  The count is 0 where there is nothing to drop.
    """
    start = max(0, min(n_keep, n_ctx - N_FREE_MIN))
    n_left = n - start
    return start, max(0, min(n_discard or n_left // 2, n_left - 1))
