"""One setting: its flags, environment names, default, reader and help.

It lives in the metadata of a dataclass field, so that type, name and default are written once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from lsm.config.readers import Collect, OnOff, Reader


@dataclass(frozen=True, slots=True)
class Setting:
    """`flags` take a value; `constants` stand for one (`--no-slots` is `off`); `env_off` names mean `off` by being set."""

    group: str
    flags: tuple[str, ...]
    read: Reader
    help: str
    default: object
    env: tuple[str, ...] = ()
    env_off: tuple[str, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    collect: Collect | None = None  # repeatable: makes one tuple of all uses
    default_text: str | None = None
    secret: bool = False  # its value appears in no message
    n_words: int = 1  # on the command line
    name: str = ""  # of the field of Settings; dotted for one of its `options`

    @property
    def spellings(self) -> tuple[str, ...]:
        return (*self.flags, *self.constants)


def setting(
    *flags: str,
    group: str,
    read: Reader,
    default: object,
    help: str,
    env: str | tuple[str, ...] = (),
    constants: Mapping[str, str] | None = None,
    unit: str = "",
    collect: Collect | None = None,
    default_text: str | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that carries a Setting.  A `secret` one stays out of repr too, and so out of logs."""
    names = (env,) if isinstance(env, str) else env
    entry = Setting(group, flags, read, help, default, names, (), constants or {}, unit, collect, default_text, secret)
    return field(default=default, metadata={"setting": entry}, repr=not secret)


def switch(
    *on: str,
    group: str,
    default: bool | None,
    help: str,
    off: tuple[str, ...] = (),
    env: str | tuple[str, ...] = (),
    default_text: str | None = None,
) -> Any:
    """A boolean field: `--x` and `--no-x`, LLAMA_ARG_X=on|off and LLAMA_ARG_NO_X."""
    names = (env,) if isinstance(env, str) else env
    negated = off or tuple(f"--no-{flag[2:]}" for flag in on if flag.startswith("--"))
    constants = {**dict.fromkeys(on, "on"), **dict.fromkeys(negated, "off")}
    env_off = tuple(name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1) for name in names if name.startswith("LLAMA_ARG_"))
    entry = Setting(group, (), OnOff(), help, default, names, env_off, constants, default_text=default_text)
    return field(default=default, metadata={"setting": entry})


def entry_of(
    path: str,
    defaults: object,
    name: str,
    *flags: str,
    group: str,
    read: Reader,
    help: str,
    env: str = "",
    constants: Mapping[str, str] | None = None,
    unit: str = "",
    collect: Collect | None = None,
    default_text: str | None = None,
) -> Setting:
    """The setting of the field `name` of a dataclass that stands elsewhere: `defaults` is one, `path` where it is in Settings."""
    names, default = (env,) if env else (), getattr(defaults, name)
    env_off = tuple(name.replace("ARG_", "ARG_NO_", 1) for name in names) if "off" in (constants or {}).values() else ()
    return Setting(group, flags, read, help, default, names, env_off, constants or {}, unit, collect, default_text, name=f"{path}.{name}")


def flat(lists: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Collects the uses of a setting whose value is a tuple itself."""
    return tuple(chain.from_iterable(lists))


def settings_of(owner: type) -> tuple[Setting, ...]:
    """The settings that a dataclass carries, in the order of its fields."""
    return tuple(
        dataclasses.replace(part.metadata["setting"], name=part.name) for part in dataclasses.fields(owner) if "setting" in part.metadata
    )
