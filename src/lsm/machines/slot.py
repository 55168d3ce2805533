"""A slot: one sequence of the KV cache, and the request that uses it.

Moved once for each phase, never for each token.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine

DECODED = ("started", "processing_prompt", "done_prompt", "generating")  # batches have rows of these
BUSY = ("wait_other", *DECODED)

SLOT = Machine(
    name="slot",
    initial="idle",
    states={
        "idle": "no request; the tokens of the last one are still in the cache",
        "wait_other": "has a further choice of a request, which waits for the slot that decodes their prompt",
        "started": "has a request; no token of it is in a batch",
        "processing_prompt": "part of the prompt has been decoded",
        "done_prompt": "the last token of the prompt is in the batch, with logits",
        "generating": "each batch has one token of it",
    },
    facts={
        "lead": "the request is the first choice of its job, the one that decodes the prompt",
        "whole": "the rest of the prompt fits into this batch",
        "shifts": "older tokens may leave this slot so that the answer goes on",
    },
    effects={
        "prefix_keep": "keep the common prefix in the cache, remove the rest",
        "prompt_copy": "what the slot of the first choice holds is in this one, too, in place of what was there",
        "context_shift": "tokens after those to keep leave, the others move up",
        "request_limit": "request: finish; the context is full",
        "tokens_keep": "what was decoded stays for the next request's prefix",
        "cache_clear": "the sequence is removed: its contents are unknown",
    },
    edges=(
        E("idle", "assign", "started", when=("lead",), do=("prefix_keep",)),
        E("idle", "assign", "wait_other", when=("!lead",)),
        E("wait_other", "share", "done_prompt", do=("prompt_copy",)),
        E("started", "batch", "processing_prompt", when=("!whole",)),
        E("started", "batch", "done_prompt", when=("whole",)),
        E("processing_prompt", "batch", "processing_prompt", when=("!whole",)),
        E("processing_prompt", "batch", "done_prompt", when=("whole",)),
        E("done_prompt", "sampled", "generating"),
        E("generating", "full", "generating", when=("shifts",), do=("context_shift",)),
        E("generating", "full", "generating", when=("!shifts",), do=("request_limit",)),
        *(E(state, "finish", "idle", do=("tokens_keep",)) for state in BUSY),
        E("wait_other", "fail", "idle", do=("tokens_keep",), why="nothing of this sequence was in a batch"),
        *(E(state, "fail", "idle", do=("cache_clear",)) for state in DECODED),
    ),
)
