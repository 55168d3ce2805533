from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

import pytest
from lsm_http.auth import is_allowed
from lsm_http.cors import cors_headers, preflight_headers
from lsm_http.errors import error_body, error_response
from lsm_http.logprobs import LOWEST, entries
from lsm_http.metrics_text import exposition
from lsm_http.native_format import NativeFormat
from lsm_http.openai_format import ChatFormat, CompletionFormat, Heading, Summary, timings
from lsm_http.sse import frame
from starlette.datastructures import Headers

from lsm.api import Counters, Finish, Text, Timings, TokenProb, TokenProbs
from lsm.errors import ContextExceeded, InvalidRequest, ModelLoading, NotFound

HEADING = Heading("m", 5, "lsm-1", "ID")


def finish(stop_type: Any = "eos", index: int = 0) -> Finish:
    return Finish(
        index=index, stop_type=stop_type, stopping_word="", truncated=False, id_slot=0, prompt_tokens=10, completion_tokens=4,
        timings=Timings(cache_n=8, prompt_n=2, prompt_ms=4.0, predicted_n=4, predicted_ms=2.0),
    )  # fmt: skip


def test_chat_answer() -> None:
    """B.4: the whole body."""
    body = ChatFormat(HEADING).whole([([Text("he", (1,)), Text("llo", (2,))], finish())])
    assert {name: body[name] for name in ("id", "object", "created", "model", "system_fingerprint")} == {
        "id": "chatcmpl-ID", "object": "chat.completion", "created": 5, "model": "m", "system_fingerprint": "lsm-1",
    }  # fmt: skip
    assert body["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop", "logprobs": None}
    ]
    assert body["usage"] == {
        "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8},
    }  # fmt: skip


def test_chat_stream() -> None:
    """B.4: role first, then content, then the reason; usage on its own chunk; timings on the last one."""
    format = ChatFormat(HEADING)
    chunks = [*format.opening(0), format.text(Text("hi", (1,))), *format.closing(finish(), Summary([finish()], include_usage=True))]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert deltas == [{"role": "assistant", "content": None}, {"content": "hi"}, {}]
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]] == [None, None, "stop"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 14
    assert ["timings" in chunk for chunk in chunks] == [False, False, False, True]


def test_without_include_usage_the_last_chunk_has_the_reason() -> None:
    """B.4: no usage chunk unless asked for."""
    (chunk,) = ChatFormat(HEADING).closing(finish("limit"), Summary([finish("limit")], include_usage=False))
    assert chunk["choices"][0]["finish_reason"] == "length" and "timings" in chunk and "usage" not in chunk


def test_text_completion() -> None:
    """B.3: the whole body and the chunks."""
    format = CompletionFormat(HEADING)
    body = format.whole([([Text("a", (1,)), Text("b", (2,))], finish("word"))])
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"text": "ab", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert format.opening(0) == []
    assert format.text(Text("a", (1,)))["choices"] == [{"text": "a", "index": 0, "logprobs": None, "finish_reason": None}]


PROBS = (
    TokenProbs(TokenProb(7, b"a", -0.5), (TokenProb(7, b"a", -0.5), TokenProb(8, b"\xe2\x82", -math.inf))),
    TokenProbs(TokenProb(9, b" b", -1.5), ()),
)
CONTENT = [
    {
        "id": 7, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": [
            {"id": 7, "token": "a", "bytes": [97], "logprob": -0.5},
            {"id": 8, "token": "", "bytes": [0xE2, 0x82], "logprob": LOWEST},
        ],
    },
    {"id": 9, "token": " b", "bytes": [32, 98], "logprob": -1.5, "top_logprobs": []},
]  # fmt: skip


def test_log_probabilities_as_llama_server_writes_them() -> None:
    """B.2 probabilities: id, token, bytes, logprob, top_logprobs; half a character is no text; -inf is the lowest float."""
    assert entries(PROBS) == CONTENT
    assert struct.unpack("f", struct.pack("f", LOWEST))[0] == LOWEST


def test_probabilities_after_the_samplers() -> None:
    """B.2 post_sampling_probs: prob and top_probs."""
    after = TokenProbs(TokenProb(7, b"a", 0.75), (TokenProb(7, b"a", 0.75),), is_log=False)
    entry = {"id": 7, "token": "a", "bytes": [97], "prob": 0.75}
    assert entries([after]) == [entry | {"top_probs": [entry]}]


def test_chat_log_probabilities() -> None:
    """B.4 logprobs: the content of a choice, whole and streamed."""
    format = ChatFormat(HEADING)
    texts = [Text("a", (7,), PROBS[:1]), Text(" b", (9,), PROBS[1:])]
    assert format.whole([(texts, finish())])["choices"][0]["logprobs"] == {"content": CONTENT}
    assert [format.text(text)["choices"][0]["logprobs"] for text in texts] == [{"content": CONTENT[:1]}, {"content": CONTENT[1:]}]


def test_completion_log_probabilities() -> None:
    """B.3 logprobs: OpenAI's four lists beside the content; the offset goes on from chunk to chunk."""
    format = CompletionFormat(HEADING)
    texts = [Text("a", (7,), PROBS[:1]), Text(" b", (9,), PROBS[1:])]
    assert format.whole([(texts, finish())])["choices"][0]["logprobs"] == {
        "content": CONTENT, "tokens": ["a", " b"], "token_logprobs": [-0.5, -1.5], "top_logprobs": [{"a": -0.5, "": LOWEST}, {}],
        "text_offset": [0, 1],
    }  # fmt: skip
    assert [format.text(text)["choices"][0]["logprobs"]["text_offset"] for text in texts] == [[0], [1]]


def test_native_log_probabilities_and_the_seed() -> None:
    """B.2: completion_probabilities, whole and streamed; generation_settings tell the seed that was drawn."""
    texts = [Text("a", (7,), PROBS[:1]), Text(" b", (9,), PROBS[1:])]
    whole = NativeFormat("m", "hello", {"seed": 0xFFFFFFFF}).whole([(texts, replace(finish(), seed=42))])
    assert whole["completion_probabilities"] == CONTENT and whole["generation_settings"]["seed"] == 42
    format = NativeFormat("m", "hello", {})
    assert [format.text(text)["completion_probabilities"] for text in texts] == [CONTENT[:1], CONTENT[1:]]
    assert "completion_probabilities" not in format.text(Text("a", (7,)))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (["content"], {"content": "a b"}),
        (["timings/prompt_n", "timings/nothing", "content/x", "", "nothing"], {"timings/prompt_n": 2}),
        (["generation_settings/seed", "stop"], {"generation_settings/seed": 7, "stop": True}),
        (["nothing"], {}),
    ],
)
def test_an_answer_tells_the_fields_that_are_asked_for(fields: list[str], told: dict[str, object]) -> None:
    """B.2 response_fields: names by their paths; what is not there is left out; a stream's end has them, its texts are whole."""
    texts, format = [Text("a", (7,)), Text(" b", (9,))], NativeFormat("m", "hello", {"seed": 7}, fields=fields)
    assert format.whole([(texts, finish())]) == told
    assert format.closing(finish(), None) == [{**told, **({"content": ""} if "content" in told else {})}]
    assert format.text(texts[0])["content"] == "a"


CHOICES = [([Text("a", (1,))], finish("limit")), ([Text("b\n", (2,), (), 1)], finish(index=1))]


def test_several_choices_in_one_body() -> None:
    """B.2 n: choices with their index and reason; the prompt counts once, the answers together."""
    chat, text = ChatFormat(HEADING).whole(CHOICES), CompletionFormat(HEADING).whole(CHOICES)
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in chat["choices"]] == [(0, "a", "length"), (1, "b\n", "stop")]
    assert [(c["index"], c["text"], c["finish_reason"]) for c in text["choices"]] == [(0, "a", "length"), (1, "b\n", "stop")]
    assert chat["usage"] == text["usage"] == {
        "prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 8},
    }  # fmt: skip
    native = NativeFormat("m", "hello", {}).whole(CHOICES)
    assert [(one["index"], one["content"], one["has_new_line"]) for one in native] == [(0, "a", False), (1, "b\n", True)]


@pytest.mark.parametrize("format", [ChatFormat(HEADING), CompletionFormat(HEADING)])
def test_several_choices_in_one_stream(format: ChatFormat | CompletionFormat) -> None:
    """B.2 n: each chunk has its index; usage and timings come once, with the last end."""
    first, last = finish(index=1), finish("limit")
    chunks = [*format.closing(first, None), *format.closing(last, Summary([last, first], include_usage=True))]
    assert [choice["index"] for chunk in chunks for choice in chunk["choices"]] == [1, 0]
    assert [("usage" in chunk, "timings" in chunk) for chunk in chunks] == [(False, False), (False, False), (True, True)]
    assert chunks[-1]["usage"]["completion_tokens"] == 8


def test_the_offsets_of_each_choice_are_its_own() -> None:
    """B.3 logprobs: characters of this answer."""
    format = CompletionFormat(HEADING)
    texts = [Text("a", (7,), PROBS[:1], index) for index in (0, 1, 1)]
    assert [format.text(text)["choices"][0]["logprobs"]["text_offset"] for text in texts] == [[0], [0], [1]]


def test_timings_and_their_rates() -> None:
    """B.2: the nine members."""
    assert timings(finish().timings) == {
        "cache_n": 8, "prompt_n": 2, "prompt_ms": 4.0, "prompt_per_token_ms": 2.0, "prompt_per_second": 500.0,
        "predicted_n": 4, "predicted_ms": 2.0, "predicted_per_token_ms": 0.5, "predicted_per_second": 2000.0,
    }  # fmt: skip


def test_timings_tell_of_guesses_where_there_were_some() -> None:
    """B.2: draft_n, draft_n_accepted."""
    guessed = Timings(cache_n=8, prompt_n=2, prompt_ms=4.0, predicted_n=4, predicted_ms=2.0, draft_n=6, draft_n_accepted=3)
    told = timings(guessed)
    assert (told["draft_n"], told["draft_n_accepted"]) == (6, 3)


def test_rates_of_nothing_are_zero() -> None:
    """B.2: a prompt wholly in the cache divides nothing by zero."""
    nothing = timings(Timings(cache_n=8, prompt_n=0, prompt_ms=0.0, predicted_n=0, predicted_ms=0.0))
    assert nothing["prompt_per_second"] == nothing["predicted_per_token_ms"] == 0.0


def test_errors_carry_code_message_and_type() -> None:
    """B.0: the form of all errors."""
    assert error_body(NotFound("no")) == {"error": {"code": 404, "message": "no", "type": "not_found_error"}}
    assert error_body(InvalidRequest("is wrong", "top_k"))["error"]["message"] == "Field 'top_k': is wrong"
    assert error_body(ContextExceeded(600, 512))["error"] == {
        "code": 400,
        "message": "request (600 tokens) exceeds the available context size (512 tokens), try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 600,
        "n_ctx": 512,
    }


def test_unavailable_says_when_to_come_back() -> None:
    """Design 3 (7): 503 with Retry-After."""
    response = error_response(ModelLoading())
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


def test_a_frame_is_one_line() -> None:
    """B.0: line breaks in the text must not end the event."""
    assert frame({"a": "x\n\ny"}) == b'data: {"a":"x\\n\\ny"}\n\n'


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/v1/models", {"authorization": "Bearer k1"}, True),
        ("/v1/models", {"authorization": "k2"}, True),
        ("/v1/models", {"x-api-key": "k2"}, True),
        ("/v1/models", {"authorization": "Bearer k"}, False),
        ("/v1/models", {"authorization": "Bearer k1 k2"}, False),
        ("/v1/models", {"authorization": "Bearer "}, False),
        ("/v1/models", {"authorization": "Bearer \xe9"}, False),
        ("/v1/models", {}, False),
        ("/lsm/state", {}, False),
        ("/health", {}, True),
        ("/v1/health", {}, True),
        ("/", {}, True),
        ("/page.js", {}, True),
    ],
)
def test_who_is_let_in(path: str, headers: dict[str, str], expected: bool) -> None:
    """B.0: keys, where they stand, and what is public."""
    assert is_allowed(path, Headers(headers), ("k1", "k2")) is expected


def test_without_keys_everybody_is_let_in() -> None:
    """B.0: no --api-key."""
    assert is_allowed("/v1/models", Headers({}), ())


def test_the_origin_is_echoed_with_vary() -> None:
    """S26: browsers refuse `*` with credentials; caches must know."""
    assert cors_headers(Headers({"origin": "http://a.test"})) == {
        "Access-Control-Allow-Origin": "http://a.test", "Access-Control-Allow-Credentials": "true", "Vary": "Origin",
    }  # fmt: skip
    assert cors_headers(Headers({})) == {}


def test_a_preflight_is_told_the_headers_it_asks_for() -> None:
    """S26: `*` does not cover Authorization."""
    asked = Headers({"access-control-request-headers": "authorization,content-type"})
    assert preflight_headers(asked)["Access-Control-Allow-Headers"] == "authorization,content-type"
    assert preflight_headers(Headers({}))["Access-Control-Allow-Headers"] == "*"


STATE = {
    "models": [{"alias": 'a"b', "bytes": {"weights": {"device": 5, "host": 0, "file": 9}}}],
    "counters": {"handoffs": 3, "wakes": 2, "refusals": 1},
}


def test_metrics_names_and_values() -> None:
    """B.1: llama-server's names, without labels for one model; rates since the scrape before."""
    before = Counters(prompt_tokens=100, prompt_seconds=1.0)
    now = Counters(prompt_tokens=300, prompt_seconds=2.0, decode_calls=4, busy_slots=6, requests_waiting=2, prompt_cache_bytes=77)
    lines = exposition({"a": now}, {"a": before}, STATE).splitlines()
    for line in (
        "# TYPE llamacpp:prompt_tokens_total counter",
        "llamacpp:prompt_tokens_total 300",
        "llamacpp:prompt_tokens_seconds 200",
        "llamacpp:predicted_tokens_seconds 0",
        "llamacpp:n_busy_slots_per_decode 1.5",
        "llamacpp:requests_deferred 2",
        "lsm:handoffs_total 3",
        "# TYPE lsm:prompt_cache_hits_total counter",
        "lsm:prompt_cache_bytes 77",
        'lsm:memory_bytes{model="a\\"b",kind="weights",place="device"} 5',
    ):
        assert line in lines


def test_metrics_of_guesses() -> None:
    """B.1 spec_decode_*: by the place in the draft once there was one; labelled where there are several models."""
    state = {"counters": {}, "models": []}
    counts = Counters(draft_tokens=6, draft_tokens_accepted=3, drafts=2, accepted_per_position=(2, 1, 0))
    lines = exposition({"one": counts}, {}, state).splitlines()
    assert "llamacpp:spec_decode_num_draft_tokens_total 6" in lines
    assert "llamacpp:spec_decode_num_accepted_tokens_total 3" in lines
    assert "llamacpp:spec_decode_num_drafts_total 2" in lines
    assert 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1' in lines
    both = exposition({"one": counts, "two": Counters()}, {}, state)
    assert 'per_pos_total{model="one",position="2"} 0' in both and 'drafts_total{model="two"} 0' in both
    assert "per_pos_total" not in exposition({"two": Counters()}, {}, state)


def test_metrics_of_several_models_are_labelled() -> None:
    """B.1: otherwise their series would be the same."""
    text = exposition({"a": Counters(), "b": Counters(tokens_max=7)}, {}, STATE)
    assert 'llamacpp:n_tokens_max{model="b"} 7' in text.splitlines()
