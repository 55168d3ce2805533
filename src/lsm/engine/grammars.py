"""Schemas and Lark as llguidance takes them, and where in a schema it stumbles.  Pure.

Nothing is forced: where only one text can follow, llguidance would ask for the tokens of all of it at once, however long it is, and forbid
all others.  The model chooses its tokens itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

from lsm.errors import InvalidRequest

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# As much white space as llama-server's own grammars permit between tokens: with more of it small models never come to an end.
# `oneOf` is taken for `anyOf`, as there; a schema's own "x-guidance" says otherwise.
DEFAULTS: JsonCompileOptions = {"whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})", "coerce_one_of": True}
MAX_LOOKS = 200  # parts of a schema that are tried in search of a mistake

_FIRST_LINE = re.compile(r"%llguidance[ \t]*(\{.*\})?[ \t]*$", re.MULTILINE)


def grammar_of_schema(text: str) -> str:
    """llguidance's grammar of a schema.  Raises `InvalidRequest`: it is not JSON, or not a schema."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"is not JSON, or nested too deeply: {error}", "json_schema") from None
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise InvalidRequest("must be an object" if schema is not False else "permits nothing", "json_schema")
    schema["x-guidance"] = {**DEFAULTS, **_options(schema.get("x-guidance"), "json_schema")}
    return str(LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\nstart: %json ' + json.dumps(schema)))


def grammar_of_lark(text: str) -> str:
    """The same of a text that begins with `%llguidance {...}`.  Raises `InvalidRequest`: that line cannot be read."""
    first = _FIRST_LINE.match(text)
    if first is None:
        raise InvalidRequest('must begin with a line "%llguidance {}"', "grammar")
    try:
        options = json.loads(first[1] or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the options in the first line are not JSON: {error}", "grammar") from None
    options = _options(options, "grammar") | {"no_forcing": True}
    return str(LLMatcher.grammar_from_lark(f"%llguidance {json.dumps(options)}{text[first.end() :]}"))


def _options(value: Any, field: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise InvalidRequest("the options of llguidance must be an object", field)
    return value or {}


def mistake_of(text: str, error_of: Callable[[str], str]) -> str:
    """What is wrong with a schema and the path to the smallest part of it that has the same mistake; empty: nothing by itself.

    `error_of`: llguidance's words about a grammar.
    """
    part, path, looks = json.loads(text), "", 0
    words = error_of(_alone(part))
    found = True
    while found and words:
        found = False
        for step, inner in _parts(part):
            looks += 1
            if looks > MAX_LOOKS:
                break
            if error_of(_alone(inner)) == words:
                path, part, found = f"{path}/{step}", inner, True
                break
    return f"{words} (at {path})" if path and words else words


def _alone(schema: Any) -> str:
    """For looking at only: answers would be forced."""
    return str(LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=DEFAULTS if isinstance(schema, dict) else None))


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly within a schema, with the way there."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and isinstance(value, dict):
            yield from ((f"{key}/{name}", inner) for name, inner in value.items() if isinstance(inner, dict))
        elif isinstance(value, list):
            yield from ((f"{key}/{index}", inner) for index, inner in enumerate(value) if isinstance(inner, dict))
        elif isinstance(value, dict):
            yield key, value
