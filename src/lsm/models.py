"""The folder of model files, which file a name means, and what can be said of a file without loading it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lsm.engine.gguf_header import read_header
from lsm.errors import ConfigError, ModelFileError

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

    @property
    def is_damaged(self) -> bool:
        """Whether the same file from its source would be sound; a fault of another kind is not mended by a download."""
        return "download it again" in self.fault


def models_directory(environ: Mapping[str, str]) -> Path:
    """LSM_MODELS_DIR, else `lsm-server/models` in the user's cache (XDG_CACHE_HOME, else ~/.cache).

    Raises ConfigError: LSM_MODELS_DIR begins with the home folder of nobody.
    """
    if given := environ.get("LSM_MODELS_DIR"):
        try:
            return Path(given).expanduser()
        except RuntimeError:
            raise ConfigError(f"LSM_MODELS_DIR={given}: there is no such home folder. Name the model folder by its full path") from None
    cache = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else Path.home() / ".cache"
    return cache / "lsm-server" / "models"


def resolve(path: Path, environ: Mapping[str, str], *, strict: bool = True) -> Path:
    """The file that a setting means: a name without a folder that is not in the current folder is looked up in the model folder.

    Whether the file is a sound one is not looked at.  Raises ModelFileError, if `strict`: a name that is in neither folder.
    """
    if path.name != str(path) or "\0" in path.name or os.path.lexists(path):
        return path
    folder = models_directory(environ)
    if os.path.lexists(folder / path):
        return folder / path
    if not strict:
        return path
    raise ModelFileError(
        f"{path}: there is no such file in the current folder ({_current_folder()}), nor in the model folder ({folder}). "
        "`lsm models` lists what is there, `lsm pull` fetches a demo model"
    )


def folder_fault(folder: Path) -> str:
    """Why `lsm pull` could not put a file into this folder, or make it; empty where it could.  Leaves nothing behind."""
    place = next((place for place in (folder, *folder.absolute().parents) if os.path.lexists(place)), Path("/"))
    if not os.path.isdir(place):
        return f"{place} is not a folder"
    try:
        os.listdir(place)
    except OSError as error:
        return f"{place} cannot be listed ({error.strerror})"
    try:
        with tempfile.TemporaryFile(dir=place):  # the only question whose answer is right for root and on read-only disks too
            return ""
    except OSError as error:
        return f"{place} cannot be written ({error.strerror})"


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
        found = sorted(_visible(place)) if os.path.isdir(place) else [place]
        paths.update(dict.fromkeys(found))
    return tuple(describe(path) for path in paths)


def _visible(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith(".")]


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "which was deleted"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0
