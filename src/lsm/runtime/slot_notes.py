"""What stands beside a slot file: its digest, whose it is, and the snapshots that llama-server's format has no place for."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsm.engine.checkpoints import Checkpoint, Checkpoints
from lsm.engine.prompt_cache import Scales
from lsm.engine.slot_file import Damaged
from lsm.tuning import Computing

SUFFIX = ".lsm"
VERSION = 1
HEAD_BYTES_MAX = 1 << 20
SAMPLE_BYTES = 1 << 16
N_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class Mark:
    """Tells apart what made a slot: `model_mark`, and `projector_mark` where it sees or hears."""

    model: str
    projector: str = ""


@dataclass(frozen=True, slots=True)
class Notes:
    """digest: SHA-256 of the slot file, in hex.  adapters: the scales of the LoRA adapters that made it."""

    digest: str
    mark: Mark
    adapters: Scales | None
    checkpoints: Checkpoints


def write_notes(notes: Notes) -> list[bytes | memoryview]:
    """A line of JSON, then the snapshots one behind the other."""
    states = [entry.state.data for entry in notes.checkpoints]
    head = {
        "version": VERSION,
        "digest": notes.digest,
        "model": notes.mark.model,
        "projector": notes.mark.projector,
        "adapters": notes.adapters,
        "snapshots": [{"n_tokens": entry.n_tokens, "size": entry.state.nbytes} for entry in notes.checkpoints],
        "snapshots_digest": _digest(states),
    }
    return [json.dumps(head).encode() + b"\n", *states]


def read_notes(data: bytes) -> Notes:
    """Raises `Damaged`."""
    head_line, newline, rest = data[:HEAD_BYTES_MAX].partition(b"\n")
    try:
        head = json.loads(head_line)
        if not newline or head["version"] != VERSION:
            raise Damaged(f"its digest in '*{SUFFIX}' is of another version; remove that file to do without")
        sizes = [(int(entry["n_tokens"]), int(entry["size"])) for entry in head["snapshots"]]
        adapters = None if head["adapters"] is None else tuple(map(float, head["adapters"]))
        notes = (str(head["digest"]), Mark(str(head["model"]), str(head.get("projector", ""))), adapters)
        digest = head["snapshots_digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged(f"the file with its digest, '*{SUFFIX}', is damaged; remove that file to do without") from None
    body = memoryview(data)[len(head_line) + 1 :]
    counts = [n_tokens for n_tokens, _ in sizes]
    in_order = counts == sorted(set(counts)) and all(n_tokens > 0 and size >= 0 for n_tokens, size in sizes)
    if not in_order or sum(size for _, size in sizes) != len(body) or _digest([body]) != digest:
        raise Damaged(f"the file with its digest, '*{SUFFIX}', is damaged; remove that file to do without")
    return Notes(*notes, tuple(_snapshots(body, sizes)))


def _snapshots(body: memoryview, sizes: Iterable[tuple[int, int]]) -> Iterable[Checkpoint]:
    at = 0
    for n_tokens, size in sizes:
        yield Checkpoint(n_tokens, "", np.frombuffer(body[at : at + size], np.uint8))
        at += size


def _digest(parts: Iterable[memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def model_mark(path: Path, computing: Computing) -> str:
    """Tells models apart, and settings that shape what they remember: from the file's size, parts of it, and RoPE.  Reads 2 MiB."""
    rope = [(name, getattr(computing, name)) for name in sorted(Computing.__dataclass_fields__) if name.startswith(("rope_", "yarn_"))]
    return _mark(path, repr(rope).encode())


def projector_mark(path: Path) -> str:
    """Tells projectors apart, likewise."""
    return _mark(path, b"")


def _mark(path: Path, settings: bytes) -> str:
    digest = hashlib.sha256(settings)
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        digest.update(str(size_bytes).encode())
        for i in range(N_SAMPLES):
            file.seek(i * max(0, size_bytes - SAMPLE_BYTES) // (N_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
