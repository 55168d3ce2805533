"""Settings whose value stands in a file: read once, at start, with a bound on the size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lsm.config.readers import JsonText
from lsm.config.settings import Settings
from lsm.errors import ConfigError

MAX_FILE_BYTES = 1 << 20


def merge_files(settings: Settings) -> Settings:
    """Chat template, grammar, schema and keys completed from their files.  Raises ConfigError."""
    if settings.chat_template_file is not None:
        if settings.chat_template is not None:
            raise ConfigError("--chat-template and --chat-template-file are both given: leave one away")
        settings = replace(settings, chat_template=_text("--chat-template-file", settings.chat_template_file))
    if settings.grammar_file is not None:
        if settings.options.sampling.grammar:
            raise ConfigError("--grammar and --grammar-file are both given: leave one away")
        sampling = replace(settings.options.sampling, grammar=_text("--grammar-file", settings.grammar_file))
        settings = replace(settings, options=replace(settings.options, sampling=sampling))
    if settings.json_schema_file is not None:
        if settings.options.sampling.json_schema:
            raise ConfigError("--json-schema and --json-schema-file are both given: leave one away")
        schema = _json("--json-schema-file", settings.json_schema_file)
        sampling = replace(settings.options.sampling, json_schema=schema)
        settings = replace(settings, options=replace(settings.options, sampling=sampling))
    if settings.api_key_file is not None:
        lines = (line.strip() for line in _text("--api-key-file", settings.api_key_file).splitlines())
        keys = tuple(line for line in lines if line and not line.startswith("#"))
        if not keys:  # an empty file must not open the server to everybody
            raise ConfigError(f"--api-key-file: {settings.api_key_file} holds no key: write one a line")
        settings = replace(settings, api_keys=(*settings.api_keys, *keys))
    return settings


def _json(flag: str, path: Path) -> str:
    try:
        return JsonText()(_text(flag, path))
    except ValueError as refusal:
        raise ConfigError(f"{flag}: {path} {refusal}") from None


def _text(flag: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{flag}: cannot read {path}: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{flag}: {path} is larger than {MAX_FILE_BYTES // 1024} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{flag}: {path} is not UTF-8 text") from None
