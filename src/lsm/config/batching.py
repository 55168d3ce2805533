"""Flags of how requests share slots and batches: settings of `lsm.batching`, whose fields and defaults stand there."""

from __future__ import annotations

from functools import partial

from lsm.batching import Batching
from lsm.config.readers import Number, OnOff, Whole
from lsm.config.setting import Setting, entry_of

SLOTS = "Slots and batches"
TOKENS_MAX = 2**31 - 1


_entry = partial(entry_of, "batching", Batching(), group=SLOTS)

BATCHING: tuple[Setting, ...] = (
    _entry(
        "n_ctx_per_slot",
        "--kv-unified-per-slot",
        read=Whole(0, TOKENS_MAX),
        env="LLAMA_ARG_KV_UNIFIED_PER_SLOT",
        unit="tokens",
        default_text="0: as many as the cache has",
        help="most tokens of one slot; without --ctx-size the cache has room for that many in each slot",
    ),
    _entry(
        "context_shift",
        read=OnOff(),
        env="LLAMA_ARG_CONTEXT_SHIFT",
        constants={"--context-shift": "on", "--no-context-shift": "off"},
        help="an answer whose slot is full drops older tokens and goes on (see --keep); not with every model, nor with images",
    ),
    _entry(
        "cont_batching",
        read=OnOff(),
        env="LLAMA_ARG_CONT_BATCHING",
        constants={"-cb": "on", "--cont-batching": "on", "-nocb": "off", "--no-cont-batching": "off"},
        help="prompts join the batches of answers under way; off: they wait until all these have ended",
    ),
    _entry(
        "slot_prompt_similarity",
        "-sps",
        "--slot-prompt-similarity",
        read=Number(0.0, 1.0),
        help="a slot is chosen for its content if it shares more than this part of the prompt; 0 is off",
    ),
)
