"""JSON schemas as llguidance takes them, and where in one it stumbles.  Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from llguidance import LLMatcher

from lsm.errors import InvalidRequest

# As much white space as llama-server's own grammars permit between tokens: with more of it small models never come to an end.
# `oneOf` is taken for `anyOf`, as there; a schema's own "x-guidance" says otherwise.
DEFAULTS = {"whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})", "coerce_one_of": True}
MAX_LOOKS = 200  # parts of a schema that are tried in search of a mistake


def grammar_of_schema(text: str) -> str:
    """llguidance's grammar of a schema.  An empty schema is any object, as in llama-server.  Raises `InvalidRequest`: it is not JSON."""
    try:
        return str(LLMatcher.grammar_from_json_schema('{"type": "object"}' if text.strip() == "{}" else text, defaults=DEFAULTS))
    except ValueError as error:
        raise InvalidRequest(str(error), "json_schema") from None


def where(text: str, is_wrong: Callable[[str], bool]) -> str:
    """The path to the smallest part of a schema that has the same mistake, as the end of a sentence; empty: it is the whole."""
    try:
        part = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    path, looks = "", 0
    while True:
        for step, inner in _parts(part):
            looks += 1
            if looks > MAX_LOOKS:
                return f" (in {path})" if path else ""
            if is_wrong(grammar_of_schema(json.dumps(inner))):
                path, part = f"{path}/{step}", inner
                break
        else:
            return f" (at {path})" if path else ""


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly within a schema, with the way there."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(value, dict):
            yield from ((f"{key}/{name}", inner) for name, inner in value.items() if isinstance(inner, dict))
        elif isinstance(value, list):
            yield from ((f"{key}/{index}", inner) for index, inner in enumerate(value) if isinstance(inner, dict))
        elif isinstance(value, dict):
            yield key, value
