"""Command line and environment into Settings.  Environment first, the command line over it; every refusal names flag, value and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lsm.config.building import build_settings
from lsm.config.files import merge_files
from lsm.config.refused import REFUSED
from lsm.config.setting import Setting
from lsm.config.settings import BY_SPELLING, SETTINGS, Settings
from lsm.errors import ConfigError

HELP_FLAGS = ("-h", "--help")
VERSION_FLAGS = ("--version",)
LIST_DEVICES = "--list-devices"

Given = dict[str, list[tuple[str, str]]]  # a setting's name -> what was written: (label for messages, text), in order


def parse_arguments(argv: Sequence[str], environ: Mapping[str, str], program: str = "lsm-server") -> Settings:
    """Settings of a server that was started with these arguments; `program` is what messages call it.

    Raises ConfigError: unknown, unsupported or removed flag; missing value; value out of range; unreadable file; no model.
    """
    warnings: list[str] = []
    given = {**_from_environment(environ, warnings, program), **_from_command_line(argv, warnings, program)}
    values = {entry.name: _value(entry, given[entry.name]) for entry in SETTINGS if entry.name in given}
    settings = replace(merge_files(build_settings(values)), given=frozenset(values))
    if not settings.model_paths:
        raise ConfigError("no model given: name a GGUF file with -m FILE (`lsm pull smollm2` fetches a small one)")
    return replace(settings, warnings=tuple(warnings))


def _from_command_line(argv: Sequence[str], warnings: list[str], program: str) -> Given:
    given: Given = {}
    words = iter(argv)
    for word in words:
        flag, inline = _split(word)
        entry = BY_SPELLING.get(flag)
        if entry is None:
            raise ConfigError(_unknown(word, flag, program))
        if flag in entry.constants:
            if inline is not None:
                raise ConfigError(f"{flag} takes no value, but got {inline!r}")
            text = entry.constants[flag]
        else:
            text = " ".join(_next_value(flag, entry, words) for _ in range(entry.n_words)) if inline is None else inline
        if entry.collect is None and entry.name in given:
            warnings.append(f"{flag} is given more than once: the last one counts")
        given.setdefault(entry.name, []).append((flag, text))
    return given


def _split(word: str) -> tuple[str, str | None]:
    """`--top_k=4` is (`--top-k`, `4`); short flags stay as they are."""
    if not word.startswith("--"):
        return word, None
    flag, equals, inline = word.partition("=")
    return flag.replace("_", "-"), inline if equals else None


def _next_value(flag: str, entry: Setting, words: Iterator[str]) -> str:
    text = next(words, None)
    if text is None:
        raise ConfigError(f"{flag} needs a value ({entry.read.metavar})")
    if text not in HELP_FLAGS and _split(text)[0] in BY_SPELLING:
        raise ConfigError(f"{flag} needs a value ({entry.read.metavar}), but {text} follows")
    return text


def _unknown(word: str, flag: str, program: str) -> str:
    if not word.startswith("-"):
        return f"{word!r} stands alone: every argument belongs to a flag (-m FILE names a model)"
    if flag in REFUSED:
        return f"{flag} {REFUSED[flag]}"
    near = difflib.get_close_matches(flag, (*BY_SPELLING, *HELP_FLAGS, *VERSION_FLAGS, LIST_DEVICES), n=1)
    return f"{flag} is not known; " + (f"did you mean {near[0]}?" if near else f"see {program} --help")


def _from_environment(environ: Mapping[str, str], warnings: list[str], program: str) -> Given:
    given: Given = {}
    for entry in SETTINGS:
        texts = [(name, environ[name]) for name in entry.env if environ.get(name)]
        texts += [(name, "off") for name in entry.env_off if name in environ]
        if texts:
            given[entry.name] = texts[:1]
    known = {name for entry in SETTINGS for name in (*entry.env, *entry.env_off)}
    strangers = sorted(name for name in environ if name.startswith("LLAMA_ARG_") and name not in known)
    warnings.extend(f"{name} is set, but {program} has no such setting: ignored" for name in strangers)
    return given


def _value(entry: Setting, given: list[tuple[str, str]]) -> Any:
    values = [_read(entry, label, text) for label, text in given]
    return entry.collect(values) if entry.collect else values[-1]


def _read(entry: Setting, label: str, text: str) -> object:
    try:
        return entry.read(text)
    except ValueError as refusal:
        shown = "the value" if entry.secret else repr(text)
        raise ConfigError(f"{label}: {shown} {refusal}") from None
