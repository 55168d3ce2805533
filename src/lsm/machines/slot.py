"""A slot: one sequence of the KV cache, and the request that uses it.

Moved once for each phase, never for each token.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine

BUSY = ("started", "processing_prompt", "done_prompt", "generating")

SLOT = Machine(
    name="slot",
    initial="idle",
    states={
        "idle": "no request; the tokens of the last one are still in the cache",
        "started": "has a request; no token of it is in a batch",
        "processing_prompt": "part of the prompt has been decoded",
        "done_prompt": "the last token of the prompt is in the batch, with logits",
        "generating": "each batch has one token of it",
    },
    facts={"whole": "the rest of the prompt fits into this batch"},
    effects={
        "prefix_keep": "keep the common prefix in the cache, remove the rest",
        "tokens_keep": "what was decoded stays for the next request's prefix",
        "cache_clear": "the sequence is removed: its contents are unknown",
    },
    edges=(
        E("idle", "assign", "started", do=("prefix_keep",)),
        E("started", "batch", "processing_prompt", when=("!whole",)),
        E("started", "batch", "done_prompt", when=("whole",)),
        E("processing_prompt", "batch", "processing_prompt", when=("!whole",)),
        E("processing_prompt", "batch", "done_prompt", when=("whole",)),
        E("done_prompt", "sampled", "generating"),
        *(E(state, "finish", "idle", do=("tokens_keep",)) for state in BUSY),
        *(E(state, "fail", "idle", do=("cache_clear",)) for state in BUSY),
    ),
)
