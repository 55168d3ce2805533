from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsm_http.bodies import Chat, Completion, parse
from lsm_http.options import make_options

from lsm.api import Options, Sampling
from lsm.errors import InvalidRequest, NotSupported

N_VOCAB = 1000


def options(body: Any, defaults: Options | None = None) -> Options:
    return make_options(parse(json.dumps(body).encode(), Completion), defaults or Options(), lambda text: [len(text)], N_VOCAB)


def test_a_request_that_says_nothing_gets_the_settings() -> None:
    """B.2: defaults come from the command line."""
    defaults = Options(max_tokens=7, stop=("END",), sampling=Sampling(top_k=3, seed=5), special=True)
    assert options({}, defaults) == defaults


def test_null_is_as_good_as_absent() -> None:
    """B.2: null = absent."""
    assert options(dict.fromkeys(["temperature", "stop", "max_tokens", "logit_bias", "samplers", "seed", "model", "grammar"])) == Options()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("temperature", -1, 0.0),
        ("top_p", 1.5, 1.0),
        ("top_p", -0.5, 0.0),
        ("min_p", 7, 1.0),
        ("top_k", -3, 0),
        ("xtc_probability", 2, 1.0),
        ("xtc_threshold", -2, 0.0),
        ("mirostat", 9, 2),
        ("repeat_penalty", 1.3, 1.3),
        ("seed", 42, 42),
        ("ignore_eos", True, True),
        ("dry_base", 0.5, 1.75),
        ("dry_base", 2.5, 2.5),
        ("grammar", 'root ::= "a"', 'root ::= "a"'),
        ("samplers", ["top_k", "temperature"], ("top_k", "temperature")),
        ("samplers", "kt", ("top_k", "temperature")),
        ("samplers", [], ()),
        ("samplers", ["Temp", "top-k", "adaptive-p"], ("temperature", "top_k", "adaptive_p")),
        ("samplers", "ai", ("adaptive_p", "infill")),
        ("adaptive_target", 2.0, 1.0),
        ("adaptive_target", -3.0, -3.0),
        ("adaptive_decay", 0.5, 0.5),
        ("dry_sequence_breakers", ["\n"], ("\n",)),
    ],
)
def test_sampling_is_taken_over_or_clamped(name: str, value: Any, expected: Any) -> None:
    """B.2: which values are clamped, and to what."""
    assert getattr(options({name: value}).sampling, name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", -2),
        ("n_predict", 2**31),
        ("seed", -2),
        ("seed", 2**32),
        ("repeat_last_n", -1),
        ("dry_penalty_last_n", -1),
        ("min_keep", -1),
        ("t_max_predict_ms", -2),
        ("sse_ping_interval", -2),
        ("id_slot", -2),
        ("max_tokens", 10**40),
    ],
)
def test_hard_ranges_are_refused_by_name(name: str, value: int) -> None:
    """B.2: "hard" = out of range -> 400 `Field '<name>': Value must be between ...`."""
    with pytest.raises(InvalidRequest, match=f"^Field '{name}': Value must be between -?\\d+ and \\d+$"):
        options({name: value})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"temperature": "hot"}, r"^Field 'temperature': Expected `float"),
        ({"top_k": 1.5}, r"^Field 'top_k': Expected `int"),
        ({"top_k": True}, r"^Field 'top_k': Expected `int"),
        ({"stop": [1]}, r"^Field 'stop\[0\]': Expected `str`"),
        ({"stream_options": {"include_usage": 1}}, r"^Field 'stream_options.include_usage': "),
        ({"samplers": ["top_q"]}, r"^Field 'samplers': names a sampler that does not exist"),
        ({"dry_sequence_breakers": []}, r"^Field 'dry_sequence_breakers': "),
        ({"logit_bias": [[5, True]]}, r"^Field 'logit_bias': "),
        ({"logit_bias": {"1000": 1}}, r"^Field 'logit_bias': token 1000 does not exist"),
        ([], r"^the body must be a JSON object"),
    ],
)
def test_wrong_values_are_refused_by_name(body: Any, message: str) -> None:
    """B.2: wrong type -> 400 `Field '<name>': ...`."""
    with pytest.raises(InvalidRequest, match=message):
        options(body)


@pytest.mark.parametrize("text", ["40.0", "4e1", "40.00", "400E-1"])
def test_whole_numbers_may_be_written_with_a_point(text: str) -> None:
    """B.2: JSON has one kind of numbers, and some languages write all of them so; one that is not whole stays refused."""
    for name, value in (("top_k", 40), ("n_predict", 40), ("seed", 40), ("temperature", 40.0)):
        body = f'{{"messages": [], "{name}": {text}, "logit_bias": [[5.0, 0.5]], "stop": "a.0"}}'.encode()
        parsed = parse(body, Chat)
        assert getattr(parsed, name) == value and parsed.logit_bias == [(5, 0.5)] and parsed.stop == "a.0"
        with pytest.raises(InvalidRequest, match="^Field 'top_k': Expected `int"):
            parse(body.replace(name.encode(), b"min_p").replace(b"{", b'{"top_k": 1.5, ', 1), Chat)


def test_the_length_has_three_names() -> None:
    """B.2, B.4: n_predict beats max_completion_tokens beats max_tokens."""
    assert options({"max_tokens": 1}).max_tokens == 1
    assert options({"max_tokens": 1, "max_completion_tokens": 2}).max_tokens == 2
    assert options({"max_tokens": 1, "max_completion_tokens": 2, "n_predict": 3}).max_tokens == 3


def test_stop_is_a_text_or_a_list_and_empty_means_the_default() -> None:
    """B.2: stop(str | list; empty -> CLI default)."""
    defaults = Options(stop=("END",))
    assert options({"stop": "a"}, defaults).stop == ("a",)
    assert options({"stop": ["a", "", "b"]}, defaults).stop == ("a", "b")
    assert options({"stop": []}, defaults).stop == options({"stop": ""}, defaults).stop == ("END",)


def test_logit_bias_in_all_its_forms() -> None:
    """B.2: pairs or object, ids or texts, false forbids; it replaces the command line's."""
    assert options({"logit_bias": [[5, 1.5], ["ab", -1], [7, False]]}).sampling.logit_bias == ((5, 1.5), (2, -1.0), (7, -math.inf))
    assert options({"logit_bias": {"5": 1.5, "abc": False}}).sampling.logit_bias == ((5, 1.5), (3, -math.inf))
    defaults = Options(sampling=Sampling(logit_bias=((1, 1.0),)))
    assert options({"logit_bias": {"5": 2}}, defaults).sampling.logit_bias == ((5, 2.0),)


@pytest.mark.parametrize(
    ("body", "n_probs"),
    [
        ({}, None), ({"n_probs": 0}, None), ({"n_probs": -1}, None), ({"n_probs": 5}, 5), ({"logprobs": False}, None), ({"logprobs": 0}, 0),
        ({"logprobs": 3}, 3), ({"logprobs": True}, 20), ({"logprobs": True, "top_logprobs": 2}, 2),
        ({"logprobs": True, "top_logprobs": 0}, 0), ({"logprobs": 3, "n_probs": 1}, 1),
    ],
)  # fmt: skip
def test_how_many_probabilities_are_told(body: dict[str, Any], n_probs: int | None) -> None:
    """B.2 n_probs alias logprobs; B.4 logprobs with top_logprobs, default 20; with OpenAI's number, 0 is the chosen token alone."""
    assert options(body).sampling.n_probs == n_probs


SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
SCHEMA_TEXT = '{"type":"object","properties":{"b":{},"a":{}}}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"json_schema": SCHEMA}, SCHEMA_TEXT),
        ({"json_schema": {}}, '{"type":"object"}'),
        ({"json_schema": False}, "false"),
        ({"response_format": {"type": "text"}}, ""),
        ({"response_format": {"type": "json_object"}}, '{"type":"object"}'),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, SCHEMA_TEXT),
        ({"response_format": {"type": "json_object"}, "json_schema": SCHEMA}, SCHEMA_TEXT),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}, SCHEMA_TEXT),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, SCHEMA_TEXT),
    ],
)
def test_a_schema_in_all_its_spellings(body: dict[str, Any], text: str) -> None:
    """B.2 json_schema, B.4 response_format: the order of members is kept, for answers follow it; an empty schema is any object."""
    assert options(body).sampling.json_schema == text


def test_a_constraint_of_the_request_replaces_that_of_the_settings() -> None:
    """B.2: one takes the place of the other, whichever of the two it is."""
    with_grammar, with_schema = Options(sampling=Sampling(grammar="root ::= x")), Options(sampling=Sampling(json_schema="{}"))
    assert options({"json_schema": False}, with_grammar).sampling == Sampling(json_schema="false")
    assert options({"grammar": "root ::= y"}, with_schema).sampling == Sampling(grammar="root ::= y")
    assert options({}, with_schema) == with_schema


def test_lazy_grammars() -> None:
    """B.2 grammar_lazy, grammar_triggers, preserved_tokens: in llama-server's form."""
    triggers = [{"type": 1, "value": "<call>"}, {"type": 0, "value": "", "token": 7}]
    sampling = options({"grammar": "root ::= x", "grammar_lazy": True, "grammar_triggers": triggers, "preserved_tokens": ["<a>"]}).sampling
    assert (sampling.grammar_lazy, sampling.grammar_triggers, sampling.preserved_tokens) == (True, ("<call>", 7), ("<a>",))
    with pytest.raises(NotSupported, match="may never end"):
        options({"grammar_triggers": [{"type": 2, "value": "(a+)+b"}]})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"json_schema": {}, "grammar": "root ::= x"}, "json_schema"),
        ({"response_format": {"type": "json_object"}, "grammar": "root ::= x"}, "response_format"),
        ({"response_format": {"type": "poem"}}, "response_format"),
        ({"response_format": "text"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"grammar_triggers": [{"type": 1}]}, "grammar_triggers"),
        ({"grammar_triggers": [{"type": 9, "value": "x"}]}, "grammar_triggers"),
        ({"adaptive_decay": 1.0}, "adaptive_decay"),
        ({"n_probs": "many"}, "n_probs"),
        ({"backend_sampling": 1}, "backend_sampling"),
        ({"post_sampling_probs": "yes"}, "post_sampling_probs"),
    ],
)
def test_contradictions_are_refused_by_name(body: dict[str, Any], field: str) -> None:
    """B.2, B.4: a schema and a grammar, an unknown format, numbers without what they belong to: 400 that names the field."""
    with pytest.raises(InvalidRequest) as refused:
        options(body)
    assert refused.value.field == field
    assert "grammar" not in body or "grammar" in refused.value.message


def test_a_key_of_many_digits_is_a_text() -> None:
    """Bad input: int() refuses more than 4300 digits, which would be our mistake, not the client's."""
    assert options({"logit_bias": {"9" * 5000: 1}})


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nonsense", b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"temperature": NaN}',
        b'{"temperature": Infinity}', b"{} {}", b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"temperature": 1e999}',
    ],
    ids=["empty", "cut", "no JSON", "UTF-16", "bad UTF-8", "lone surrogate", "NaN", "Infinity", "two values", "deep", "too large"],
)  # fmt: skip
def test_what_is_no_json_is_a_bad_request(data: bytes) -> None:
    """B.0: malformed JSON is a 400, also where it is only ignored members that are malformed."""
    with pytest.raises(InvalidRequest):
        parse(data, Completion)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)  # the machine may be busy
@given(st.dictionaries(st.sampled_from(Chat.__struct_fields__), json_values, max_size=6))
def test_any_json_gives_options_or_a_clean_refusal(body: dict[str, Any]) -> None:
    """B.2: no value of any known field ends in anything but Options or InvalidRequest."""
    try:
        assert isinstance(make_options(parse(json.dumps(body).encode(), Chat), Options(), lambda text: [0], N_VOCAB), Options)
    except InvalidRequest:
        pass
