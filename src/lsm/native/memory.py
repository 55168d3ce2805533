"""What a model holds on the device: away and back, without the model being loaded again.

The rules of the shim (`cffi_build/shim/lsm_device.h`) are the caller's: one thread at a time for each owner, no decode meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lsm.native.checks import check, message_buffer
from lsm.native.library import ffi, lib

__all__ = ["SHADOWS", "Bytes", "DeviceMemory", "MemoryClass", "install", "owner_scope", "set_shadow", "spill_directory"]


class MemoryClass(StrEnum):
    """Kinds of device memory that come and go on their own."""

    WEIGHTS = "weights"
    KV = "kv"
    COMPUTE = "compute"
    ENCODER = "encoder"
    ADAPTERS = "adapters"


BITS = {
    MemoryClass.WEIGHTS: lib.LSM_CLASS_WEIGHTS,
    MemoryClass.KV: lib.LSM_CLASS_KV,
    MemoryClass.COMPUTE: lib.LSM_CLASS_COMPUTE,
    MemoryClass.ENCODER: lib.LSM_CLASS_ENCODER,
    MemoryClass.ADAPTERS: lib.LSM_CLASS_ADAPTERS,
}


class Bytes(NamedTuple):
    """Sizes in bytes: on the device now; released.  Copies: in ordinary host memory; those for which a file is the copy; in pinned memory
    of our own.  `registered`: how much of the files is pinned, so that the device reads it by itself.
    """

    device: int = 0
    released: int = 0
    host: int = 0
    file: int = 0
    pinned: int = 0
    registered: int = 0


def spill_directory(environ: Mapping[str, str]) -> Path:
    """Where live memory of the CPU (the KV cache) is kept while it is released: LSM_SPILL_DIR, else `lsm-server/spill` in the user's cache.

    It belongs on a disk: on a tmpfs the bytes leave the process, but not the machine's memory. Nothing in it ever has a name for longer
    than an instant, so it may be emptied or removed at any time.
    """
    if given := environ.get("LSM_SPILL_DIR"):
        return Path(given).expanduser().absolute()
    try:
        cache_home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in some containers
        cache_home = Path("/var/tmp")
    return cache_home.absolute() / "lsm-server" / "spill"


@cache
def install() -> None:
    """Put our hooks in front of llama.cpp's buffers, and name the folder for spilled memory; before the first model, once for each process.

    Raises:
        ServerError: this build has no backend that can be hooked.
    """
    lib.llama_backend_init()
    err = message_buffer()
    check(lib.lsm_device_install(err, len(err)), err)
    lib.lsm_device_spill_dir(os.fsencode(spill_directory(os.environ)))


SHADOWS = {"file": lib.LSM_SHADOW_FILE, "pinned": lib.LSM_SHADOW_PINNED, "pageable": lib.LSM_SHADOW_PAGEABLE}


def set_shadow(kind: str, max_bytes: int) -> None:
    """What weights loaded from now on come back from, in this process: `file`, `pinned` or `pageable`.

    max_bytes: how much host memory copies and pinned parts of files may take together.  Weights beyond it come from the file, more slowly.
    """
    lib.lsm_device_shadow(SHADOWS[kind], max_bytes)


@contextmanager
def owner_scope(owner: int, memory_class: MemoryClass | None = None) -> Iterator[None]:
    """Buffers that this thread makes inside belong to `owner`; without a class, each is classed by what it turns out to be."""
    previous = lib.lsm_device_scope(owner, BITS[memory_class] if memory_class else lib.LSM_CLASS_AUTO)
    try:
        yield
    finally:
        lib.lsm_device_scope_restore(previous)


class DeviceMemory:
    """The four verbs over the buffers of one owner. Needs no model: what was never allocated has no bytes and is resident."""

    def __init__(self, owner: int) -> None:
        self.owner = owner

    def release(self, *classes: MemoryClass | str) -> None:
        """Give the memory of these classes back to the device, after saving what cannot be had again. Idempotent.

        Raises:
            SpillError: `spill_directory` cannot take the copies (full, not writable, a failing disk); nothing was released.
            DeviceMemoryError: the host has no memory for the copies; nothing was released.
            NotSupported: a buffer of a kind that cannot be released.
        """
        err = message_buffer()
        check(lib.lsm_device_release(self.owner, _bits(classes), err, len(err)), err)

    def restore(self, *classes: MemoryClass | str) -> None:
        """Take the memory again, with the same contents. Idempotent; all of the classes or none.

        Raises:
            DeviceMemoryError: the device has no room; everything is as before, try again.
            SpillError: a copy cannot be read back; everything is as before.
            SourceChanged: the model's file is not the one that was loaded.
            ModelFileError: the file could not be read.
        """
        err = message_buffer()
        check(lib.lsm_device_restore(self.owner, _bits(classes), err, len(err)), err)

    def resident(self, memory_class: MemoryClass | str) -> bool:
        """False while any buffer of this class is released."""
        return not lib.lsm_device_is_released(self.owner, _bits((memory_class,)))

    def bytes(self, memory_class: MemoryClass | str) -> Bytes:
        out = ffi.new("uint64_t[6]")
        lib.lsm_device_bytes(self.owner, _bits((memory_class,)), out)
        return Bytes(*out)

    def peak_bytes(self, *, restart: bool = False) -> int:
        """The most bytes that the owner had on the device at one time, all classes together, since it was last asked with `restart`."""
        return int(lib.lsm_device_peak(self.owner, restart))

    def prepare(self, *classes: MemoryClass | str) -> None:
        """Make pinned room for copies of live memory of these classes, in the background: a release that finds it is as fast as the bus.

        Where the host's bound (`set_shadow`) or the driver gives less, a release copies the rest more slowly.  Nothing is made where the
        processor reads the device's memory itself.

        Raises:
            DeviceMemoryError: the host has no address space for it.
        """
        err = message_buffer()
        check(lib.lsm_device_prepare(self.owner, _bits(classes), err, len(err)), err)

    def wait_for_room(self, *classes: MemoryClass | str) -> None:
        """Until as much room is made as `prepare` will make: for tests and measurements."""
        lib.lsm_device_wait_for_room(self.owner, _bits(classes))

    def let_host_stay(self, yes: bool) -> None:
        """Whether to leave alone what this owner allocates in the host's own memory from now on: it has another device."""
        lib.lsm_device_let_host_stay(self.owner, yes)

    def open_source(self, path: str | os.PathLike[str], memory_class: MemoryClass = MemoryClass.WEIGHTS) -> None:
        """The GGUF file at `path` will be the copy of weights that are about to be loaded inside `owner_scope`.

        Raises:
            ModelFileError: it cannot be read.
        """
        err = message_buffer()
        check(lib.lsm_source_open(self.owner, BITS[memory_class], os.fsencode(path), err, len(err)), err)

    def bind_sources(self, memory_class: MemoryClass = MemoryClass.WEIGHTS) -> None:
        """After the load: compare what can be compared with the files, and keep copies of what they do not hold.

        Raises:
            SourceChanged: a file was replaced during the load.
            DeviceMemoryError: the host has no room for the copies.
        """
        err = message_buffer()
        check(lib.lsm_source_bind(self.owner, BITS[memory_class], err, len(err)), err)

    def abandon(self, memory_class: MemoryClass) -> None:
        """Free what a load that failed inside llama.cpp left behind in this class; nobody else can name it any more."""
        lib.lsm_device_abandon(self.owner, BITS[memory_class])

    def forget(self) -> None:
        """After the owner's models and contexts are freed: close its files."""
        lib.lsm_device_forget(self.owner)


def _bits(classes: tuple[MemoryClass | str, ...]) -> int:
    bits = 0
    for name in classes:
        bits |= BITS[MemoryClass(name)]
    return bits
