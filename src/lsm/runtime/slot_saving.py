"""Slots into files and back: the engine thread copies states, a thread of its own waits for the disk, and the loop for neither."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import trio

from lsm.config.settings import ModelSource
from lsm.engine.slot_content import EraseSlot, LoadSlot, SaveSlot
from lsm.errors import NotSupported
from lsm.runtime.owner import Owner
from lsm.runtime.slot_files import SlotFolder, check_name, without_projector
from lsm.runtime.slot_notes import Mark, model_mark, projector_mark
from lsm.tuning import Computing
from lsm.values import SlotFile

Result = TypeVar("Result")

SPARE_BYTES = 16 << 20  # of a state beside the cache's own bytes: where each cell is


class SlotFiles:
    """For all models of a host.  `folder` is None where no --slot-save-path was given; then everything is refused."""

    def __init__(self, folder: SlotFolder | None, sources: Iterable[ModelSource], computing: Computing) -> None:
        self._folder = folder
        self._sources = {source.alias: source for source in sources}
        self._computing = computing
        self._marks: dict[str, Mark] = {}
        self._disk = trio.CapacityLimiter(1)

    async def save(self, owner: Owner, slot: int, filename: str) -> SlotFile:
        """See `lsm.api.Host.save_slot`."""
        folder, start_s = self._opened(filename), trio.current_time()
        done = await owner.do_slot_job(SaveSlot(uuid.uuid4().hex, slot))
        assert done.content is not None
        n_bytes = await self._on_disk(folder.write, filename, done.content, await self._mark(owner.alias))
        return _result(slot, filename, done.n_tokens, n_bytes, start_s)

    async def restore(self, owner: Owner, slot: int, filename: str) -> SlotFile:
        """See `lsm.api.Host.restore_slot`."""
        folder, start_s = self._opened(filename), trio.current_time()
        size_max_bytes = SPARE_BYTES + 2 * sum(owner.sizes.bytes.get("kv", {}).values())
        mark = await self._mark(owner.alias)
        recall = owner.perception.recall if mark.projector else without_projector
        found = await self._on_disk(folder.read, filename, mark, size_max_bytes, owner.adapter_scales, recall)
        done = await owner.do_slot_job(LoadSlot(uuid.uuid4().hex, slot, found.content, found.is_sound))
        n_again = done.n_tokens - done.n_resumable
        degraded = "" if n_again <= 1 else f"this model's memory cannot go back: the same prompt again decodes its last {n_again} tokens"
        return _result(slot, filename, done.n_tokens, found.size_bytes, start_s, degraded)

    async def erase(self, owner: Owner, slot: int) -> int:
        """See `lsm.api.Host.erase_slot`."""
        self._opened()
        return (await owner.do_slot_job(EraseSlot(uuid.uuid4().hex, slot))).n_tokens

    def _opened(self, filename: str | None = None) -> SlotFolder:
        """Raises `NotSupported`, or `InvalidRequest` for the name."""
        if self._folder is None:
            raise NotSupported("This server does not support slots action. Start it with `--slot-save-path`")
        if filename is not None:
            check_name(filename)
        return self._folder

    async def _mark(self, alias: str) -> Mark:
        if alias not in self._marks:
            self._marks[alias] = await self._on_disk(mark_of, self._sources[alias], self._computing)
        return self._marks[alias]

    async def _on_disk(self, act: Callable[..., Result], *args: Any) -> Result:
        return await trio.to_thread.run_sync(partial(act, *args), limiter=self._disk)


def mark_of(source: ModelSource, computing: Computing) -> Mark:
    """Reads some parts of the files."""
    return Mark(model_mark(source.path, computing), projector_mark(source.projector) if source.projector else "")


def _result(slot: int, filename: str, n_tokens: int, n_bytes: int, start_s: float, degraded: str = "") -> SlotFile:
    elapsed_ms = 1e3 * (trio.current_time() - start_s)
    return SlotFile(id_slot=slot, filename=filename, n_tokens=n_tokens, n_bytes=n_bytes, elapsed_ms=elapsed_ms, degraded=degraded)
