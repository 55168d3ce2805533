"""What is told of each token, through the whole engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsm.engine.engine import Engine
from lsm.engine.outputs import Output, Piece
from lsm.errors import InvalidRequest, ServerError
from lsm.values import Sampling, Text, TokenProbs
from tests.engine.loaded import GREEDY, generate, loaded, run, submit
from tests.engine.scripted import Bench, error, result, texts, tokens

GRAMMAR = 'root ::= "no" "!"'


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    with loaded(tiny_llama, 900_103, n_parallel=2) as engine:
        yield engine


def told(outputs: list[Output], id: str = "one") -> list[TokenProbs]:
    return [probs for output in outputs if isinstance(output, Piece) and output.id == id for probs in output.text.probs]


def ask(engine: Engine, sampling: Sampling, **options: Any) -> tuple[list[int], list[TokenProbs]]:
    submit(engine, "one", "hello world", sampling, **({"max_tokens": 8, "cache_prompt": False} | options))
    outputs = run(engine)
    return tokens(outputs, "one"), told(outputs)


def greedy(**changes: Any) -> Sampling:
    return Sampling(temperature=0, ignore_eos=True, **changes)


def test_each_token_comes_with_its_likelihood(engine: Engine) -> None:
    """B.2 n_probs: one entry for each token, the likeliest first; the answer is the one that nobody asked about."""
    answer, probs = ask(engine, greedy(n_probs=3))
    assert answer == generate(engine, "hello world", GREEDY, max_tokens=8)
    assert [of.chosen.token for of in probs] == answer
    for of in probs:
        values = [other.value for other in of.top]
        assert len(values) == 3 and values == sorted(values, reverse=True) and of.is_log
        assert of.chosen.value == values[0] <= 0 and of.top[0].token == of.chosen.token
        assert of.chosen.piece == engine.vocab.piece(of.chosen.token, False)


def test_none_are_told_where_none_were_asked_for(engine: Engine) -> None:
    """B.2 n_probs 0."""
    assert ask(engine, greedy())[1] == []


def test_only_the_chosen_ones(engine: Engine) -> None:
    """B.4 top_logprobs 0: the token of the answer alone."""
    assert [len(of.top) for of in ask(engine, greedy(n_probs=0))[1]] == [0] * 8


def test_more_than_there_are(engine: Engine) -> None:
    """B.2 n_probs: at most the whole vocabulary, which sums up to one."""
    _, (of,) = ask(engine, greedy(n_probs=10**9), max_tokens=1)
    assert len(of.top) == engine.vocab.n_tokens
    assert sum(math.exp(other.value) for other in of.top) == pytest.approx(1, abs=1e-4)


def test_after_the_samplers(engine: Engine) -> None:
    """B.2 post_sampling_probs: probabilities among what is left; with temperature 0 that is one token."""
    _, probs = ask(engine, greedy(n_probs=5, post_sampling_probs=True))
    assert [[(other.token, other.value) for other in of.top] for of in probs] == [[(of.chosen.token, 1.0)] for of in probs]
    _, probs = ask(engine, Sampling(seed=3, top_k=4, n_probs=9, post_sampling_probs=True))
    assert all(1 <= len(of.top) <= 4 and sum(other.value for other in of.top) == pytest.approx(1, abs=1e-5) for of in probs)
    assert not any(of.is_log for of in probs)


def test_a_grammar_does_not_change_what_the_model_thinks(engine: Engine) -> None:
    """B.2 n_probs: the model's own probabilities, before the grammar; the chosen token's is among them or below."""
    answer, probs = ask(engine, Sampling(temperature=0, grammar=GRAMMAR, n_probs=2))
    assert [of.chosen.token for of in probs] == answer
    assert all(of.chosen.value <= of.top[0].value for of in probs)
    constrained = Sampling(temperature=0, json_schema='{"const": "no!"}', n_probs=2, post_sampling_probs=True)
    assert all(of.top[0].token == of.chosen.token and of.chosen.value == 1.0 for of in ask(engine, constrained)[1])


def test_nothing_is_told_of_a_stop_string() -> None:
    """B.2 stop: its tokens are no part of the answer; those held back in case they were are told with their text."""
    bench = Bench()
    letters = {letter: 3 + ord(letter) - ord("a") for letter in "abcst"}
    bench.submit("one", [5, 6], [letters[letter] for letter in "asbst"], stop=("st",), max_tokens=9)
    (sampler,) = bench.samplers
    sampler.tells = True
    outputs = bench.run()
    assert texts(outputs, "one") == "asb"
    assert [of.chosen.token for of in told(outputs)] == [letters[letter] for letter in "asb"]
    assert tokens(outputs, "one") == [letters[letter] for letter in "asbst"]


def test_texts_are_joined_with_their_likelihoods() -> None:
    """B.4: a reader that is slow gets several tokens in one piece, and all that was told of them."""
    from lsm.runtime.answer import _joined

    assert _joined([Text("a", (1,), ("x",)), Text("b", (2, 3), ("y", "z"))]) == Text("ab", (1, 2, 3), ("x", "y", "z"))  # type: ignore[arg-type]


def test_the_seed_is_reported(engine: Engine) -> None:
    """B.2 seed: -1 draws one, which gives the same answer again."""

    def seeded(seed: int) -> tuple[str, int | None]:
        submit(engine, "one", "hello", Sampling(seed=seed, temperature=2.0, ignore_eos=True), max_tokens=12, cache_prompt=False)
        text, finish = result(run(engine), "one")
        return text, finish.seed

    assert seeded(42)[1] == 42
    text, seed = seeded(-1)
    assert seed is not None and seed not in (-1, 0xFFFFFFFF) and seeded(seed) == (text, seed)
    submit(engine, "fill", "hello", max_tokens=0)
    assert result(run(engine), "fill")[1].seed is None


def test_adaptive_p_draws(engine: Engine) -> None:
    """C.4 adaptive_p: used only where it is named; repeats with its seed; a lower target draws less likely tokens."""
    named = {"samplers": ("top_k", "adaptive_p"), "seed": 5, "n_probs": 0}
    answer, high = ask(engine, Sampling(adaptive_target=0.9, **named), max_tokens=40)
    assert ask(engine, Sampling(adaptive_target=0.9, **named), max_tokens=40)[0] == answer
    _, low = ask(engine, Sampling(adaptive_target=0.01, **named), max_tokens=40)
    assert sum(of.chosen.value for of in low) < sum(of.chosen.value for of in high)


def test_a_lazy_grammar_needs_a_trigger(engine: Engine) -> None:
    """B.2 grammar_triggers: 400 without; with a word the answer is free until it comes."""
    submit(engine, "one", "hello", Sampling(grammar=GRAMMAR, grammar_lazy=True))
    refused = error(run(engine), "one")
    assert isinstance(refused, InvalidRequest) and refused.field == "grammar_triggers"
    free = generate(engine, "hello world", GREEDY, max_tokens=8)
    lazy = greedy(grammar=GRAMMAR, grammar_lazy=True, grammar_triggers=("a word that does not come",))
    assert generate(engine, "hello world", lazy, max_tokens=8) == free


def test_a_sampler_that_has_nothing_left_fails_its_request_alone(engine: Engine) -> None:
    """D.2: 500 for that one; the other one in the batch is served."""
    nothing = Sampling(logit_bias=tuple((token, -math.inf) for token in range(engine.vocab.n_tokens)))
    submit(engine, "nothing", "hello", nothing)
    submit(engine, "one", "hello", GREEDY, max_tokens=4)
    outputs = run(engine)
    failed = error(outputs, "nothing")
    assert isinstance(failed, ServerError) and "no token" in failed.message
    assert result(outputs, "one")[1].completion_tokens == 4


@pytest.mark.parametrize(
    "change",
    [{}, {"temperature": 0.8, "seed": 7}, {"logit_bias": ((5, 3.0),)}, {"n_probs": 2, "post_sampling_probs": True}, {"top_k": 3}],
    ids=str,
)
def test_the_device_samples_as_the_processor_does(engine: Engine, change: dict[str, Any]) -> None:
    """S34: backend_sampling gives the same text, also where a part of the chain stays on the processor."""
    wanted = {"temperature": 0.0, "ignore_eos": True} | change
    plain, _ = ask(engine, Sampling(**wanted))
    assert ask(engine, Sampling(backend_sampling=True, **wanted))[0] == plain
    assert ask(engine, Sampling(**wanted))[0] == plain  # and nothing of it stays behind in the slot


@pytest.mark.parametrize(
    ("change", "is_offloaded"),
    [
        ({}, True),
        ({"n_probs": 1, "post_sampling_probs": True}, True),
        ({"n_probs": 1}, False),
        ({"grammar": GRAMMAR}, False),
        ({"json_schema": "{}"}, False),
        ({"backend_sampling": False}, False),
    ],
)
def test_where_the_device_does_not_sample(engine: Engine, change: dict[str, Any], is_offloaded: bool) -> None:
    """S34: not with a grammar, not where the model's own probabilities are told, not unless asked."""
    sampler, _ = engine._samplers.new(Sampling(**({"backend_sampling": True} | change)))  # type: ignore[union-attr]
    assert sampler.wants_offload is is_offloaded
    sampler.close()


def test_the_device_samples_for_two_and_across_a_sleep(engine: Engine) -> None:
    """S34, S9: both in one batch, compute memory away in the middle."""
    wanted = greedy(backend_sampling=True)
    alone = ask(engine, wanted, max_tokens=6)[0]
    for id in ("one", "two"):
        submit(engine, id, "hello world", wanted, max_tokens=6, cache_prompt=False)
    outputs: list[Output] = []
    while engine.has_work:
        engine.step()
        outputs += engine.outputs()
        engine.memory.release("weights", "kv", "compute")
        engine.memory.restore("weights", "kv", "compute")
    assert tokens(outputs, "one") == tokens(outputs, "two") == alone
