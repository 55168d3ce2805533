"""What a request says its answer must look like, in all the ways there are to say it."""

from __future__ import annotations

from typing import Any

import msgspec

from lsm.errors import InvalidRequest, NotSupported
from lsm_http.bodies import Generation, GrammarTrigger

ANY_OBJECT = {"type": "object"}
WORD, TOKEN = 1, 0  # llama-server's kinds of triggers
PATTERNS = (2, 3)


def constraints(body: Generation) -> dict[str, Any]:
    """Fields of Sampling.  One of the request's own takes the place of the settings'.  Raises `InvalidRequest` or `NotSupported`."""
    schema = _schema(body)
    if schema is not None and body.grammar:
        name = "response_format" if body.json_schema is None else "json_schema"
        raise InvalidRequest(f"cannot be used together with grammar: leave {name} or grammar out", name)
    changes: dict[str, Any] = {
        "grammar_lazy": body.grammar_lazy,
        "grammar_triggers": None if body.grammar_triggers is None else tuple(map(_trigger, body.grammar_triggers)),
        "preserved_tokens": None if body.preserved_tokens is None else tuple(body.preserved_tokens),
    }
    if schema is not None:
        changes |= {"json_schema": msgspec.json.encode(schema).decode(), "grammar": ""}
    elif body.grammar is not None:
        changes |= {"json_schema": "", "grammar": body.grammar}
    return {name: value for name, value in changes.items() if value is not None}


def _schema(body: Generation) -> Any:
    """The JSON schema; None: there is none.  What `response_format` says goes before `json_schema`, as in llama-server."""
    form = body.response_format
    if form is None or form.type == "text":
        schema = body.json_schema
    elif form.type == "json_object":
        schema = form.schema if form.schema is not None else ANY_OBJECT if body.json_schema is None else body.json_schema
    elif form.type == "json_schema":
        schema = form.json_schema.schema if form.json_schema is not None else form.schema
        if schema is None:
            raise InvalidRequest('"json_schema" must have a "schema"', "response_format")
    else:
        raise InvalidRequest('must be an object whose "type" is "text", "json_object" or "json_schema"', "response_format")
    return ANY_OBJECT if schema == {} else schema


def _trigger(trigger: GrammarTrigger) -> str | int:
    if trigger.type in PATTERNS:
        raise NotSupported(
            "Field 'grammar_triggers': patterns (types 2 and 3) are not supported: the search may never end; name words or tokens"
        )
    if trigger.type == WORD and trigger.value is not None:
        return trigger.value
    if trigger.type == TOKEN and trigger.token is not None:
        return trigger.token
    raise InvalidRequest('a trigger is {"type": 1, "value": WORD} or {"type": 0, "token": ID}', "grammar_triggers")
