"""Request bodies, typed.  Unknown members are ignored, null is as good as absent, a wrong type is a 400 that names the member."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from lsm.errors import InvalidRequest


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class JsonSchema(msgspec.Struct):
    schema: Any = None


class ResponseFormat(msgspec.Struct):
    """OpenAI's `{"type": "json_schema", "json_schema": {"schema": ...}}`, and llama-server's with `schema` beside `type`."""

    type: str
    schema: Any = None
    json_schema: JsonSchema | None = None


class GrammarTrigger(msgspec.Struct):
    type: int
    value: str | None = None
    token: int | None = None


class LoraScale(msgspec.Struct):
    id: int
    scale: float


class Generation(msgspec.Struct):
    """What every route that generates understands.  Ranges and meanings: `options.py`; what is refused: `unsupported.py`."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    sse_ping_interval: int | None = None
    # control and length
    cache_prompt: bool | None = None
    return_tokens: bool | None = None
    response_fields: list[str] | None = None  # of the native routes
    id_slot: int | None = None
    t_max_predict_ms: int | None = None
    n_predict: int | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    # sampling
    samplers: str | list[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    top_n_sigma: float | None = None
    typical_p: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    repeat_last_n: int | None = None
    repeat_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    min_keep: int | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float | bool] | list[tuple[int | str, float | bool]] | None = None
    adaptive_target: float | None = None
    adaptive_decay: float | None = None
    backend_sampling: bool | None = None
    n_probs: int | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    post_sampling_probs: bool | None = None
    # what the answer must look like: `constraints.py`
    grammar: str | None = None
    grammar_lazy: bool | None = None
    grammar_triggers: list[GrammarTrigger] | None = None
    preserved_tokens: list[str] | None = None
    json_schema: Any = None
    response_format: ResponseFormat | None = None
    # more than one answer, and what is told on the way
    n: int | None = None
    n_cmpl: int | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    lora: list[LoraScale] | None = None
    # what happens in the cache
    n_keep: int | None = None
    n_discard: int | None = None
    n_cache_reuse: int | None = None
    # known, and refused where they would change the answer
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    n_indent: int | None = None


class Completion(Generation):
    """`POST /v1/completions`."""

    prompt: Any = None


class Chat(Generation):
    """`POST /v1/chat/completions` and `POST /apply-template`."""

    messages: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning_format: str | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget_tokens: int | None = None
    reasoning_control: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None


class Tokenize(msgspec.Struct):
    content: str | list[str | int] | None = None
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class Detokenize(msgspec.Struct):
    tokens: list[int] | None = None
    model: str | None = None


class SlotAction(msgspec.Struct):
    """The body of `POST /slots/{id_slot}`."""

    filename: str | None = None
    model: str | None = None


class ModelName(msgspec.Struct):
    """The body of `POST /lsm/sleep` and `/lsm/wake`."""

    model: str | None = None


class AdapterScale(msgspec.Struct):
    """One of the array of `POST /lora-adapters`."""

    id: int
    scale: float = 0.0


Body = TypeVar("Body")
PATH = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>[^`]*)`$", re.DOTALL)
LARGEST_EXACT = 2**53  # up to here a float tells which whole number was meant
MAX_REREAD_BYTES = 2**20  # so that nobody waits for the numbers of one body


def parse(data: bytes, kind: type[Body]) -> Body:
    """Raises `InvalidRequest`: not JSON, nested too deeply, or a member of the wrong type, which it names."""
    try:
        return _decoded(data, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None


def _decoded(data: bytes, kind: type[Body]) -> Body:
    """3.0 is as good as 3 where a whole number is wanted: some languages write every number with a point."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error) or len(data) > MAX_REREAD_BYTES:
            raise
    return msgspec.convert(msgspec.json.Decoder(float_hook=_number).decode(data), kind)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) <= LARGEST_EXACT else value


def _invalid(message: str) -> InvalidRequest:
    match = PATH.match(message)
    if match is None or not match["path"]:
        return InvalidRequest(f"the body must be a JSON object: {match['what'] if match else message}")
    return InvalidRequest(match["what"], match["path"])
