"""What a model has in device memory, and the order in which it moves.

Weights are dropped (the file has them), KV is copied to the host first if it must go, compute buffers keep nothing.  `restore` is one
atomic act: memory for every class is taken before the first byte is filled, and host copies are let go last.  So a failed restore
leaves everything as it was, and KV is back before anything can look at it (S6).  The encoder of images and sound leaves with the rest;
it comes back on its own, just in time (`lsm.machines.encoder`), unless it was told to stay.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

LEAVE = ("release_compute", "release_encoder", "release_weights")

RESIDENCY = Machine(
    name="residency",
    initial="absent",
    states={
        "absent": "no model is loaded",
        "arriving": "the model is being loaded straight into device memory",
        "resident": "everything that decode needs is in device memory",
        "hollow": "the weights made room for the encoder and did not come back: the engine stands still, everything leaves",
        "leaving": "classes are being released, one after the other",
        "away": "released; the model file and the copies have the contents",
        "entering": "every released class is being restored",
        "orphaned": "the model was freed before a move of its memory could start; the answer to that move is still to come",
        "broken": "the file is not the one that was loaded: restoring it would be wrong",
    },
    facts={
        "evict_kv": "the KV cache leaves with the weights: --sleep-evict-kv, or somebody asks for everything",
        "owed": "somebody asks for everything, and something has stayed on the device",
        "encoder_stays": "the encoder is in device memory whenever the model is awake (there is one, and no --mmproj-ondemand)",
    },
    effects={
        "release_compute": "free the compute buffers; nothing is kept",
        "release_encoder": "free the encoder, if it is there; the file is its copy",
        "release_weights": "free the weights and the adapters that change them; their files are the copies",
        "release_kv": "copy the used part of the KV cache to the host or a file, then free it; without room for the copy it stays",
        "report_left": "when all that was asked for is done -> left",
        "report_evicted": "when the KV cache has gone after the rest -> evicted",
        "recount": "write into the ledger what is there, or what we are about to take if room was found for it meanwhile, and ring",
        "restore": "take memory for all but the encoder, then fill KV, weights, compute; commit -> entered | enter_failed | source_changed",
        "restore_with_encoder": "the same, and the encoder along with it",
        "rest": "sleep: rest; there is nothing left to hold the token for",
        "tell_granted": "load: granted",
        "tell_source_changed": "load: source_changed",
        "tell_mapped": "token: mapped",
        "tell_map_failed": "token: map_failed",
        "tell_unmapped": "token: unmapped",
    },
    edges=(
        E("absent", "enter", "arriving", do=("tell_granted",), why="the token is held before the first byte (S7)"),
        E("absent", "leave", "absent", do=("tell_unmapped",)),
        E("arriving", "loaded", "resident", do=("tell_mapped",)),
        E("arriving", "load_failed", "absent", do=("tell_map_failed",), why="the loader has freed what it took"),
        *(E(state, "leave", "leaving", when=("!evict_kv",), do=(*LEAVE, "report_left")) for state in ("resident", "hollow")),
        *(E(state, "leave", "leaving", when=("evict_kv",), do=(*LEAVE, "release_kv", "report_left")) for state in ("resident", "hollow")),
        E("resident", "weights_lost", "hollow", do=("rest",), why="the next turn in the line may bring room"),
        E("resident", "freed", "absent", do=("rest",), why="told from here, behind `mapped`: SLEEP has heard that it is awake"),
        E("hollow", "freed", "absent"),
        E("leaving", "left", "away", do=("tell_unmapped",)),
        E("leaving", "freed", "orphaned"),
        E("away", "enter", "entering", when=("!encoder_stays",), do=("restore",), why="the encoder comes just in time"),
        E("away", "enter", "entering", when=("encoder_stays",), do=("restore_with_encoder",)),
        E("away", "leave", "away", do=("tell_unmapped",), why="after a restore that failed"),
        E("away", "look", "away", when=("owed",), do=("release_kv", "report_evicted"), why="a KV cache that stayed is in the way"),
        E("away", "look", "away", when=("!owed",)),
        E("away", "evicted", "away", do=("recount",)),
        E("away", "freed", "absent", do=("recount",)),
        E("entering", "entered", "resident", do=("tell_mapped",)),
        E("entering", "enter_failed", "away", do=("tell_map_failed",), why="rolled back: as it was before"),
        E("entering", "source_changed", "broken", do=("tell_source_changed", "tell_map_failed")),
        E("entering", "freed", "orphaned"),
        E("orphaned", "left", "absent", do=("tell_unmapped",)),
        E("orphaned", "enter_failed", "absent", do=("tell_map_failed",)),
        E("broken", "enter", "broken", do=("tell_map_failed",)),
        E("broken", "leave", "broken", do=("tell_unmapped",)),
        E("broken", "freed", "absent", do=("recount",)),
    ),
    ignores=ignoring("look", "absent", "arriving", "resident", "hollow", "leaving", "entering", "orphaned", "broken")
    | ignoring("evicted", "absent", "arriving", "entering", "orphaned"),
)
