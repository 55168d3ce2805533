"""A request for tokens ends in exactly one of done, failed, cancelled.

A job that asks for several answers has one of these for each; when one fails, the others do.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

LIVE = ("queued", "prefilling", "generating")
ENDED = ("done", "failed", "cancelled")

REQUEST = Machine(
    name="request",
    initial="queued",
    states={
        "queued": "accepted; no slot yet",
        "prefilling": "has a slot; its prompt is being decoded, here or in the slot of the first choice",
        "generating": "its first token has been sampled",
        "done": "ended by itself: stop word, end of generation, or a limit",
        "failed": "ended by an error, which the client has been told",
        "cancelled": "ended by the client, by a disconnect, or by the server's stop",
    },
    facts={},
    effects={
        "slot_finish": "slot: finish",
        "slot_fail": "slot: fail",
        "others_fail": "the other choices of the job: fail",
        "report_done": "the client gets the last text, usage and timings",
        "report_failed": "the client gets the error",
        "report_cancelled": "nobody listens; the owner is told that the demand is gone",
    },
    edges=(
        E("queued", "start", "prefilling"),
        E("prefilling", "first_token", "generating"),
        E("prefilling", "finish", "done", do=("slot_finish", "report_done"), why="asked only to fill the cache"),
        E("generating", "finish", "done", do=("slot_finish", "report_done")),
        E("queued", "fail", "failed", do=("others_fail", "report_failed")),
        E("prefilling", "fail", "failed", do=("slot_fail", "others_fail", "report_failed")),
        E("generating", "fail", "failed", do=("slot_fail", "others_fail", "report_failed")),
        E("queued", "cancel", "cancelled", do=("report_cancelled",)),
        E("prefilling", "cancel", "cancelled", do=("slot_finish", "report_cancelled")),
        E("generating", "cancel", "cancelled", do=("slot_finish", "report_cancelled")),
    ),
    ignores=ignoring("cancel", *ENDED) | ignoring("fail", *ENDED),
)
