"""Models and keyword arguments into `Settings`: the names are its fields, the ranges those of the flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lsm.config import SETTINGS, Setting, Settings
from lsm.config.building import build_settings
from lsm.config.files import merge_files
from lsm.config.settings import HTTP, LOG
from lsm.errors import ConfigError
from lsm_embed.values import is_encodable, nearest, shown, value_of

Models = Mapping[str, str | os.PathLike[str]]  # the name for requests -> the GGUF file

EXAMPLE = '{"smollm2": "smollm2-135m-instruct-q4_1.gguf"}'

FOREIGN = {entry.name for entry in SETTINGS if entry.group in (HTTP, LOG)}
GIVEN_BY_MODELS = {"model_paths", "aliases"}
BY_NAME: Mapping[str, Setting] = {
    entry.name.rpartition(".")[2]: entry for entry in SETTINGS if entry.name not in FOREIGN | GIVEN_BY_MODELS
}


def settings_for(models: Models, changes: Mapping[str, Any]) -> Settings:
    """Settings for `models` with `changes` over the defaults; those of `options` and its `sampling` go by their own names.

    The environment is not read: a program that embeds models chooses for itself.
    Raises `ConfigError`: no model, an unknown name, a value that the flag of that name would refuse.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError(f"no model given: name at least one, as in {EXAMPLE}")
    aliases = tuple(map(_alias, models))
    values = {_known(name).name: _checked(name, value) for name, value in changes.items() if value is not None}
    paths = tuple(_path(alias, path) for alias, path in models.items())
    return merge_files(build_settings({**values, "model_paths": paths, "aliases": aliases}))


def _alias(alias: Any) -> str:
    if not isinstance(alias, str) or not alias.strip() or not is_encodable(alias):
        raise ConfigError(f"{shown(alias)} is no name for a model: a text that is not empty is wanted, as in {EXAMPLE}")
    return alias


def _path(alias: str, path: Any) -> Path:
    """`~` is the user's home; whether the file is there is found when it is read."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"the file of model {alias!r} is {shown(path)}: the path of a GGUF file is wanted, as in {EXAMPLE}")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"the file of model {alias!r} is {shown(path)}: there is no such home folder") from None


def _known(name: str) -> Setting:
    if name in FOREIGN:
        raise ConfigError(f"{name} is a setting of the HTTP server and its log: it means nothing here")
    if name not in BY_NAME:
        raise ConfigError(f"{name} is not a setting; {nearest(name, BY_NAME)}")
    return BY_NAME[name]


def _checked(name: str, value: Any) -> Any:
    try:
        return value_of(BY_NAME[name], value)
    except ValueError as refusal:
        raise ConfigError(f"{name}: {shown(value)} {refusal}") from None

