"""OpenAI's own client on a real model: answers parsed into a class, and how likely their tokens were."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field

import lsm
from tests.e2e.servers import Server

pytestmark = pytest.mark.slow
Client = openai.OpenAI


class Person(BaseModel):
    name: Literal["Ann", "Bob"]
    age: int
    pets: Annotated[list[Literal["cat", "dog"]], Field(max_length=2)]


QUESTION: Any = [{"role": "user", "content": "Bob is 5 and has a dog. Describe him as JSON."}]


@pytest.fixture(scope="module")
def server(real_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("arena") / "arena", real_model("smollm2"), "smollm2") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_an_answer_is_parsed_into_a_class(client: Client) -> None:
    """B.4 response_format json_schema, as OpenAI's client sends it."""
    answer = client.chat.completions.parse(model="smollm2", messages=QUESTION, response_format=Person, temperature=0, max_tokens=200)
    person = answer.choices[0].message.parsed
    assert isinstance(person, Person) and answer.choices[0].finish_reason == "stop"


def test_a_streamed_answer_is_parsed_into_a_class(client: Client) -> None:
    """B.4 the same, streamed."""
    wanted: Any = {"model": "smollm2", "messages": QUESTION, "response_format": Person, "temperature": 0, "max_tokens": 200}
    with client.chat.completions.stream(**wanted) as stream:
        answer = stream.get_final_completion()
    assert isinstance(answer.choices[0].message.parsed, Person)


def test_log_probabilities_of_a_chat(client: Client) -> None:
    """B.4 logprobs, top_logprobs: one entry for each token, whole and streamed alike; together they are the answer."""
    wanted: Any = {"model": "smollm2", "messages": QUESTION, "temperature": 0, "max_tokens": 8, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**wanted).choices[0]
    assert whole.logprobs is not None and whole.logprobs.content is not None
    entries = whole.logprobs.content
    assert len(entries) == 8 and all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
    assert bytes(byte for entry in entries for byte in entry.bytes or ()).decode() == whole.message.content
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(stream=True, **wanted) if chunk.choices]
    streamed = [entry for chunk in chunks if chunk.logprobs for entry in chunk.logprobs.content or ()]
    assert [entry.token for entry in streamed] == [entry.token for entry in entries]
    assert [entry.logprob for entry in streamed] == pytest.approx([entry.logprob for entry in entries], abs=0.05)


def test_log_probabilities_of_a_completion(client: Client) -> None:
    """B.3 logprobs: OpenAI's lists; the text begins where the offset says."""
    choice = client.completions.create(model="smollm2", prompt="Once upon a time", temperature=0, max_tokens=6, logprobs=2).choices[0]
    told = choice.logprobs
    assert told is not None and told.tokens is not None and told.text_offset is not None and told.token_logprobs is not None
    assert [choice.text[at : at + len(token)] for at, token in zip(told.text_offset, told.tokens, strict=True)] == told.tokens
    assert all(value is not None and math.isfinite(value) for value in told.token_logprobs)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "banana"}}}}, "banana"),
        ({"response_format": {"type": "json_object"}, "extra_body": {"grammar": "root ::= [a]"}}, "grammar"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_what_is_wrong_is_said(client: Client, wanted: dict[str, Any], words: str) -> None:
    """B.0: 400 with the field, and the server goes on."""
    with pytest.raises(openai.BadRequestError, match=words):
        client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=4, **wanted)
    assert client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=1).choices[0].finish_reason == "length"


def test_others_are_served_while_a_schema_is_compiled(server: Server, client: Client) -> None:
    """Design 6: a large schema is compiled beside the engine, not in it; and it is refused, or answered, in time."""
    schema = {"enum": [f"value {i} {'x' * (i % 50)}" for i in range(8_000)]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    try:
        answer = client.chat.completions.create(model="smollm2", messages=QUESTION, max_tokens=60, response_format=form)
        text = answer.choices[0].message.content
        assert text is not None and text.startswith('"value ')
    except openai.BadRequestError as refused:
        assert "json_schema" in str(refused)
    assert server.get("/health").status_code == 200


def test_the_library_parses_a_schema(real_model: Callable[[str], Path], tmp_path: Path) -> None:
    """B.2 json_schema from Python: a mapping; the seed and the likelihoods come with the answer."""
    with lsm.open({"smollm2": real_model("smollm2")}, arena=tmp_path / "arena", n_ctx=512, threads=1) as models:
        answer = models["smollm2"].chat("Describe Bob.", json_schema=Person.model_json_schema(), max_tokens=200, seed=7, n_probs=1)
        assert Person.model_validate_json(answer.text) and answer.seed == 7
        assert len(answer.probs) == answer.completion_tokens
