"""Flags of what is kept of prompts beside the slots: settings of `lsm.keeping`, whose fields and defaults stand there."""

from __future__ import annotations

from functools import partial

from lsm.config.readers import FilePath, OnOff, Whole
from lsm.config.setting import Setting, entry_of
from lsm.keeping import Keeping

CACHE = "Prompt cache"
TOKENS_MAX = 2**31 - 1
MIB_MAX = 2**40  # more than any machine has


_entry = partial(entry_of, "keeping", Keeping(), group=CACHE)

KEEPING: tuple[Setting, ...] = (
    _entry(
        "n_ctx_checkpoints",
        "-ctxcp",
        "--ctx-checkpoints",
        "--swa-checkpoints",
        read=Whole(0, 2**20),
        env="LLAMA_ARG_CTX_CHECKPOINTS",
        help="most snapshots of one slot, for models whose memory cannot go back (sliding windows, recurrent states); 0 is off",
    ),
    _entry(
        "checkpoint_min_step",
        "-cms",
        "--checkpoint-min-step",
        read=Whole(0, TOKENS_MAX),
        env="LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
        unit="tokens",
        help="least distance of two snapshots, but for those near the end of a prompt; 0 is none",
    ),
    _entry(
        "cache_ram_mib",
        "-cram",
        "--cache-ram",
        read=Whole(0, MIB_MAX, {"-1": -1}),
        env="LLAMA_ARG_CACHE_RAM",
        unit="MiB",
        help="host memory for prompts that no slot holds any more; 0 is off, -1 as much as the tokens of one full context take",
    ),
    _entry(
        "cache_idle_slots",
        read=OnOff(),
        env="LLAMA_ARG_CACHE_IDLE_SLOTS",
        constants={"--cache-idle-slots": "on", "--no-cache-idle-slots": "off"},
        help="a new request sends what idle slots hold into that cache; with one KV cache for all slots they are cleared",
    ),
    _entry(
        "slot_save_path",
        "--slot-save-path",
        read=FilePath("DIR"),
        default_text="none: slots are not saved",
        help="folder for files of slots (POST /slots/ID?action=save, restore)",
    ),
)
