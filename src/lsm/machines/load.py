"""The life of a model: from a file to something that serves, and back.

Loading is a demand like any other, so the token is held before the first byte of the model is in device memory (S7), and it is
kept afterwards: the first request finds the model awake.
"""

from __future__ import annotations

from lsm.machines.table import Edge as E
from lsm.machines.table import Machine, ignoring

LOAD = Machine(
    name="load",
    initial="unloaded",
    states={
        "unloaded": "only the path is known",
        "queued": "waits for the token; nothing has been read",
        "loading": "the token is held; the file is being read into device memory",
        "aborting": "the load was called off; the loader has not answered yet",
        "ready": "serves, awake or asleep",
        "unloading": "the engine is freeing everything",
        "failing": "the file changed under a loaded model; the engine is freeing everything",
        "failed": "could not be loaded, or restored; `why` says which; a load may be tried again",
    },
    facts={"hopeless": "the file is wrong, or the load was called off: trying again cannot help"},
    effects={
        "demand_add": "sleep: one more needs the model awake",
        "demand_drop": "sleep: one less",
        "engine_load": "check the file, then load it on the engine thread -> loaded | load_failed",
        "load_abort": "the loader's progress callback answers no -> load_failed",
        "engine_free": "fail what waits or runs, free context and model on the engine thread -> freed",
        "residency_loaded": "residency: loaded",
        "residency_failed": "residency: load_failed",
        "residency_freed": "residency: freed",
    },
    edges=(
        E("unloaded", "load", "queued", do=("demand_add",)),
        E("queued", "granted", "loading", do=("engine_load",)),
        E("queued", "refused", "failed", do=("demand_drop",), why="no token: the arena is gone, or the disk is full"),
        E("queued", "unload", "unloaded", do=("demand_drop",)),
        E("loading", "loaded", "ready", do=("residency_loaded", "demand_drop"), why="resident first: the model stays awake (S7)"),
        E("loading", "load_failed", "failed", when=("hopeless",), do=("residency_failed", "demand_drop"), why="the token follows"),
        E("loading", "load_failed", "queued", when=("!hopeless",), do=("residency_failed",), why="the token's patience decides"),
        E("loading", "unload", "aborting", do=("load_abort",)),
        E("aborting", "load_failed", "unloaded", do=("residency_failed", "demand_drop")),
        E("aborting", "loaded", "unloading", do=("residency_loaded", "demand_drop", "engine_free"), why="the abort came too late"),
        E("unloaded", "granted", "unloaded", do=("residency_failed",), why="it was called off while the token was on its way: decline"),
        E("failed", "granted", "failed", do=("residency_failed",), why="likewise"),
        E("ready", "source_changed", "failing", do=("engine_free",), why="what is in the file now is not what the KV cache was made with"),
        E("ready", "unload", "unloading", do=("engine_free",)),
        E("unloading", "freed", "unloaded", do=("residency_freed",)),
        E("failing", "freed", "failed", do=("residency_freed",)),
        E("failing", "unload", "unloading"),
        E("failed", "load", "queued", do=("demand_add",)),
        E("failed", "unload", "unloaded"),
    ),
    ignores=ignoring("load", "queued", "loading", "aborting", "ready", "unloading", "failing")
    | ignoring("unload", "unloaded", "aborting", "unloading")
    | ignoring("source_changed", "unloaded", "unloading")
    | ignoring("refused", "unloaded", "loading", "aborting", "ready", "unloading", "failing", "failed"),
)
