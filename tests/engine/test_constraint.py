"""Answers that must look like something.  The model is tiny and its weights are random, so that nothing is right by itself."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm.engine.constraint import MAX_KEPT, MAX_TEXT_BYTES, Grammars
from lsm.engine.engine import Engine
from lsm.errors import InvalidRequest, ServerError
from lsm.native.model import Model
from lsm.values import Sampling
from tests.engine.loaded import loaded, run, submit
from tests.engine.scripted import error, result

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["ann", "bob"]}, "age": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
LARK = "%llguidance {}\nstart: \"yes\" | /no{1,3}/\n"


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    with loaded(tiny_llama, 900_101, n_parallel=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def grammars(tiny_llama: Path) -> Iterator[Grammars]:
    with Model.load(tiny_llama, 900_102) as model:
        yield Grammars(model.vocab)


def answer(engine: Engine, sampling: Sampling, **options: Any) -> tuple[str, str]:
    submit(engine, "one", "hello", sampling, **({"max_tokens": 200} | options))
    text, finish = result(run(engine), "one")
    return text, finish.stop_type


def schema(value: Any, **sampling: Any) -> Sampling:
    return Sampling(json_schema=json.dumps(value), **({"seed": 3} | sampling))


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0}, {"temperature": 3.0, "top_k": 0, "min_p": 0.0, "top_p": 1.0}])
def test_an_answer_follows_its_schema(engine: Engine, sampling: dict[str, Any]) -> None:
    """B.2 json_schema: whatever the samplers would like, and it ends by itself."""
    text, stop_type = answer(engine, schema(PERSON, **sampling))
    person = json.loads(text)
    assert person["name"] in ("ann", "bob") and 0 <= person["age"] <= 9 and len(person) == 2
    assert stop_type == "eos"


def test_lark_and_regular_expressions(engine: Engine) -> None:
    """B.2 grammar: a text that begins with %llguidance is Lark, as in llama-server."""
    texts = {answer(engine, Sampling(grammar=LARK, seed=seed, temperature=2.0))[0] for seed in range(8)}
    assert texts <= {"yes", "no", "noo", "nooo"} and len(texts) > 1


def test_a_seed_repeats_a_constrained_answer(engine: Engine) -> None:
    """B.2 seed: also where tokens are drawn twice."""
    sampling = schema({"type": "string", "maxLength": 20}, temperature=2.0, seed=11)
    assert answer(engine, sampling) == answer(engine, sampling) != answer(engine, schema({"type": "string", "maxLength": 20}, seed=12))


def test_the_end_comes_though_it_is_forbidden(engine: Engine) -> None:
    """B.2 ignore_eos: a complete object leaves nothing but the end."""
    assert answer(engine, schema({"const": "a"}, ignore_eos=True)) == ('"a"', "eos")


def test_a_schema_and_a_free_answer_share_a_batch(engine: Engine) -> None:
    """D.2: what constrains one slot does not reach another."""
    free = Sampling(temperature=0, ignore_eos=True)
    alone = answer(engine, free, max_tokens=12)
    submit(engine, "bound", "hello", schema(PERSON), max_tokens=200)
    submit(engine, "free", "hello", free, max_tokens=12)
    outputs = run(engine)
    assert result(outputs, "free")[0] == alone[0] and json.loads(result(outputs, "bound")[0])


def test_a_constraint_that_biases_make_impossible_fails_alone(engine: Engine) -> None:
    """B.0: 500 for the one request, the other one is served."""
    quote = [token for token in range(engine.vocab.n_tokens) if b'"' in engine.vocab.piece(token)]
    impossible = schema({"const": "a"}, logit_bias=tuple((token, float("-inf")) for token in quote))
    submit(engine, "impossible", "hello", impossible)
    submit(engine, "free", "hello", Sampling(temperature=0, ignore_eos=True), max_tokens=5)
    outputs = run(engine)
    failed = error(outputs, "impossible")
    assert isinstance(failed, ServerError) and "no token" in failed.message
    assert result(outputs, "free")[1].completion_tokens == 5
    assert answer(engine, schema(PERSON))[1] == "eos"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"type": "banana"}, "Invalid type: banana"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "banana"}}}}, "banana (at /properties/a/items)"),
        ({"anyOf": [{"type": "string"}, {"not": {}}]}, '["not"] (at /anyOf/1)'),
        ({"type": "string", "pattern": "(?=a)b"}, "look-ahead"),
        ({"$ref": "http://example.com/schema"}, "http://example.com/schema"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable"),
        (3, "must be an object"),
        (False, "permits nothing"),
        ({"x-guidance": 3}, "options of llguidance"),
    ],
)
def test_a_bad_schema_is_refused_in_llguidances_words_with_the_path(grammars: Grammars, value: Any, words: str) -> None:
    """B.2: bad schema -> 400 of the field json_schema."""
    with pytest.raises(InvalidRequest) as refused:
        grammars.compile(("json_schema", json.dumps(value)))
    assert refused.value.field == "json_schema" and words in refused.value.message


def test_bad_lark_is_refused(grammars: Grammars) -> None:
    """B.2: bad grammar -> 400 of the field grammar."""
    with pytest.raises(InvalidRequest) as refused:
        grammars.compile(("grammar", "%llguidance {}\nstart: missing\n"))
    assert refused.value.field == "grammar" and "missing" in refused.value.message


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + "{}" + "}" * depth


def crossed(n: int) -> dict[str, Any]:
    """4**n ways to merge."""
    any_of = [{"anyOf": [{"properties": {f"p{i}_{j}": {}}, "required": [f"p{i}_{j}"]} for j in range(4)]} for i in range(n)]
    return {"allOf": any_of}


HOSTILE = {
    "deep": nested(5_000),
    "large": json.dumps({"enum": ["x" * MAX_TEXT_BYTES]}),
    "wide": json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}),
    "values": json.dumps({"enum": [f"value {i}" for i in range(50_000)]}),
    "exponential": json.dumps(crossed(14)),
    "repetition": json.dumps({"type": "string", "pattern": "^((a{100}){100}){100}$"}),
    "length": json.dumps({"type": "string", "minLength": 10_000_000}),
    "items": json.dumps({"type": "array", "minItems": 1_000_000}),
    "multiple": json.dumps({"type": "integer", "multipleOf": 1234567, "minimum": 3, "maximum": 10**30}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_costs_little(grammars: Grammars, name: str) -> None:
    """S33, faults: deep, huge, exponential: refused or compiled in bounded time, and other threads run meanwhile."""
    ticks, is_done = [0], threading.Event()

    def tick() -> None:
        while not is_done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    start_s = time.thread_time()
    try:
        grammars.compile(("json_schema", HOSTILE[name]))
    except InvalidRequest as refused:
        assert refused.field == "json_schema" and len(refused.message) < 2_000
    finally:
        took_s = time.thread_time() - start_s
        is_done.set()
        thread.join()
    assert took_s < 2.0
    assert ticks[0] >= 10 or took_s < 0.1


def test_compiled_constraints_are_kept_and_the_oldest_dropped(grammars: Grammars) -> None:
    """S33: compile once for each schema, in bounded memory."""
    first = ("json_schema", '{"const": "first"}')
    compiled = grammars.compile(first)
    assert grammars.compile(first) is compiled
    for i in range(MAX_KEPT):
        grammars.compile(("json_schema", json.dumps({"const": i})))
    assert not grammars.is_compiled(first)


def test_what_is_slow_is_prepared_elsewhere(engine: Engine) -> None:
    """Design 6: compiling and comparing breakers are for another thread; afterwards there is nothing left to do."""
    for sampling in (schema({"const": "prepared"}), Sampling(dry_multiplier=0.5, dry_sequence_breakers=("?",))):
        work = engine.preparation(sampling)
        assert work is not None
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert engine.preparation(sampling) is None
    assert engine.preparation(Sampling()) is None
    bad = engine.preparation(schema({"type": "banana"}))
    assert bad is not None
    with pytest.raises(InvalidRequest):
        bad()
