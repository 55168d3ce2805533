"""One suite over all doors: whichever way a model is reached, it answers alike and refuses alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm.config import Settings
from lsm.tuning import Computing
from tests.transports.doors import OPENERS, Door, Refused
from tests.transports.limits import within_limit
from tests.transports.scripted_host import N_CTX, open_scripted_host

SETTINGS = Settings(
    model_paths=(Path("echo.gguf"), Path("second.gguf"), Path("broken.gguf"), Path("loading.gguf")),
    aliases=("echo", "second", "broken", "loading"),
    port=0,
    computing=Computing(embeddings=True),
)


SLOW = {"mcp": pytest.mark.slow}  # a process of its own, and two seconds to import the SDK


@pytest.fixture(scope="module", params=[pytest.param(name, marks=SLOW.get(name, ())) for name in OPENERS])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    with OPENERS[request.param](SETTINGS, open_scripted_host, "tests.transports.scripted_mcp") as door:
        yield door


def refusal_of(door: Door, model: str, prompt: str, **wishes: object) -> Refused:
    with pytest.raises(Refused) as refused:
        within_limit(lambda: door.complete(model, prompt, **wishes))
    return refused.value


def state_of(door: Door, model: str) -> dict[str, str]:
    [entry] = [entry for entry in door.state()["models"] if entry["alias"] == model]
    return {name: machine["state"] for name, machine in entry["machines"].items()}


def test_models_are_listed_in_order(door: Door) -> None:
    """B.1: every model, loaded or not, in the order of the command line."""
    assert door.names() == ["echo", "second", "broken", "loading"]


def test_a_text_is_completed(door: Door) -> None:
    """B.3: the answer, why it ended, and how many tokens it took."""
    reply = within_limit(lambda: door.complete("second", "héllo"))
    assert (reply.text, reply.finish) == ("héllo", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (6, 6)


def test_a_conversation_is_answered(door: Door) -> None:
    """B.4: the chat template stands between the messages and the model."""
    reply = within_limit(lambda: door.chat("echo", "Hello you"))
    assert reply.text == "Hello you"
    assert reply.prompt_tokens > len("Hello you")


def test_max_tokens_limits_the_answer(door: Door) -> None:
    """B.2: the finish says that it was cut."""
    reply = within_limit(lambda: door.complete("echo", "abcdef", max_tokens=3))
    assert (reply.text, reply.finish, reply.completion_tokens) == ("abc", "length", 3)


def test_a_stop_text_ends_the_answer_before_it(door: Door) -> None:
    """B.2: the stop text is not part of the answer."""
    reply = within_limit(lambda: door.complete("echo", "one STOP two", stop=["STOP"]))
    assert (reply.text, reply.finish) == ("one ", "stop")


def test_what_is_in_the_cache_is_counted(door: Door) -> None:
    """S17: all but one token of a repeated prompt come from the cache."""
    within_limit(lambda: door.complete("echo", "the same prompt"))
    reply = within_limit(lambda: door.complete("echo", "the same prompt"))
    assert (reply.prompt_tokens, reply.cached_tokens) == (15, 14)


def test_pieces_make_the_whole(door: Door) -> None:
    """B.3: a stream says the same as the whole answer, in whole characters."""
    pieces = within_limit(lambda: door.pieces("echo", "gänzlich 日本"))
    assert "".join(pieces) == "gänzlich 日本"


def test_a_text_is_tokenized(door: Door) -> None:
    """B.5: token ids."""
    if door.name == "mcp":
        pytest.skip("tokens mean nothing to a model that uses tools")
    assert within_limit(lambda: door.tokenize("echo", "hé")) == [104, 195, 169]


def test_inputs_become_vectors(door: Door) -> None:
    """B.5: one for each input, in order; a sleeping model is woken."""
    if door.name == "mcp":
        pytest.skip("vectors mean nothing to a model that uses tools")
    within_limit(lambda: door.sleep("second"))
    assert within_limit(lambda: door.embed("second", ["hé", "you"])) == [[3, 104, 99], [3, 121, 99]]
    assert state_of(door, "second")["sleep"] == "awake"


def test_an_empty_input_is_refused(door: Door) -> None:
    """B.5: empty: 400."""
    if door.name == "mcp":
        pytest.skip("vectors mean nothing to a model that uses tools")
    for inputs in ([], ["a", ""]):
        with pytest.raises(Refused) as refused:
            within_limit(lambda inputs=inputs: door.embed("echo", inputs))
        assert refused.value.type == "invalid_request_error"


def test_sleep_and_wake_show_in_the_state(door: Door) -> None:
    """P15: a sleeping model is listed and shows its state; bytes leave the device."""
    within_limit(lambda: door.sleep("second"))
    assert state_of(door, "second")["sleep"] == "asleep"
    assert "second" in door.names()
    within_limit(lambda: door.wake("second"))
    assert state_of(door, "second")["sleep"] == "awake"


def test_a_request_wakes_a_sleeping_model(door: Door) -> None:
    """S8: the caller does not have to know that it slept."""
    within_limit(lambda: door.sleep("second"))
    assert within_limit(lambda: door.complete("second", "up")).text == "up"
    assert state_of(door, "second")["sleep"] == "awake"


def test_the_state_is_the_whole_document(door: Door) -> None:
    """B.0: the same document at every door."""
    state = door.state()
    assert set(state) >= {"models", "token", "budget_bytes", "counters"}
    assert set(state["models"][0]["bytes"]) >= {"weights", "kv", "compute", "encoder"}


def test_an_unknown_model_is_not_found(door: Door) -> None:
    """B.0: not_found_error, naming the models that there are."""
    refused = refusal_of(door, "smollm3", "x")
    assert refused.type == "not_found_error"
    assert "echo" in refused.message


def test_a_prompt_that_does_not_fit_is_refused(door: Door) -> None:
    """B.2: exceed_context_size_error, with both numbers."""
    refused = refusal_of(door, "echo", "x" * N_CTX)
    assert refused.type == "exceed_context_size_error"
    assert refused.message.count(str(N_CTX)) == 2


@pytest.mark.parametrize(
    ("model", "prompt", "type"),
    [
        ("broken", "x", "unavailable_error"),
        ("loading", "x", "unavailable_error"),
        ("echo", "x [no room]", "unavailable_error"),
        ("echo", "x [refuse]", "server_error"),
        ("echo", "x [break]", "server_error"),
        ("echo", "", "invalid_request_error"),
    ],
)
def test_a_failure_keeps_its_kind_and_the_next_request_is_served(door: Door, model: str, prompt: str, type: str) -> None:
    """B.0: the kind of an error is the same at every door, and it leaves nothing behind."""
    assert refusal_of(door, model, prompt).type == type
    assert within_limit(lambda: door.complete("echo", "next")).text == "next"


def test_a_wrong_option_is_refused_by_name(door: Door) -> None:
    """B.2: the message names the field."""
    refused = refusal_of(door, "echo", "x", max_tokens=-2)
    assert refused.type == "invalid_request_error"
    assert "max_tokens" in refused.message


def test_leaving_cancels(door: Door) -> None:
    """S4: the only slot is free again, though the answer would never have ended."""
    within_limit(lambda: door.abandon("echo", "x [stall]", lambda: None))
    assert within_limit(lambda: door.complete("echo", "next")).text == "next"


def test_cheap_questions_are_answered_while_a_request_runs(door: Door) -> None:
    """P15: listing and state do not wait for the only slot."""
    seen: list[object] = []

    def ask() -> None:
        seen.extend([door.names()[0], door.state()["models"][0]["requests"]])

    within_limit(lambda: door.abandon("echo", "x [stall]", ask))
    assert seen == ["echo", {"running": 1, "waiting": 0}]
