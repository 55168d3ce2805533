"""The folder of model files, and what can be said of a file without loading it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsm.engine.gguf_header import read_header
from lsm.errors import ModelFileError

SUFFIX = ".gguf"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One GGUF file.  `fault` is empty for a sound one; otherwise it says what is wrong, and nothing else is known."""

    path: Path
    size_bytes: int
    architecture: str = ""
    name: str = ""
    fault: str = ""

    @property
    def alias(self) -> str:
        """What a server calls it when nobody says otherwise."""
        return self.path.name.removesuffix(SUFFIX)


def models_directory(environ: Mapping[str, str]) -> Path:
    """LSM_MODELS_DIR, else `lsm-server/models` in the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    if environ.get("LSM_MODELS_DIR"):
        return Path(environ["LSM_MODELS_DIR"]).expanduser()
    cache = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else Path.home() / ".cache"
    return cache / "lsm-server" / "models"


def describe(path: Path) -> ModelFile:
    """What the file says of itself.  A broken or missing file is an answer too, so nothing is raised."""
    try:
        header = read_header(path)
    except ModelFileError as error:
        return ModelFile(path, _size(path), fault=error.message.removeprefix(f"{path}: "))
    return ModelFile(path, header.file_size_bytes, header.architecture, header.name)


def find_models(places: Iterable[Path]) -> tuple[ModelFile, ...]:
    """The files named, and the *.gguf files of the folders named, in this order; a file that is named twice is listed once."""
    paths: dict[Path, None] = {}
    for place in places:
        found = sorted(_visible(place)) if place.is_dir() else [place]
        paths.update(dict.fromkeys(found))
    return tuple(describe(path) for path in paths)


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith(".")]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0
