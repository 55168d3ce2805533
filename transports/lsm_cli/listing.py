"""`lsm models`: the model files of this machine, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lsm.models import ModelFile


def as_json(files: Sequence[ModelFile]) -> str:
    rows = [
        {
            "alias": file.alias,
            "path": str(file.path),
            "size_bytes": file.size_bytes,
            "architecture": file.architecture or None,
            "name": file.name or None,
            "fault": file.fault or None,
        }
        for file in files
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False)


def as_table(files: Sequence[ModelFile], folder: Path) -> str:
    if not files:
        return f"no model files in {folder}. `lsm pull smollm2` fetches a small one"
    heads = ("alias", "size", "architecture", "name", "path")
    rows = [heads, *(_row(file) for file in files)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads) - 1)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows)


def _row(file: ModelFile) -> tuple[str, ...]:
    path = f"{file.path}: {file.fault}" if file.fault else str(file.path)
    return (file.alias, f"{file.size_bytes / 1e6:.1f} MB", file.architecture or "broken", file.name or "-", path)
