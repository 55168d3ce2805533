"""Which token is drawn, with logits from a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lsm.errors import InvalidRequest, ServerError
from lsm.native.context import Context
from lsm.native.model import Model
from lsm.native.sampler import Sampler, Step
from tests.native.runner import open_context

DEFAULT_CHAIN: list[Step] = [
    ("penalties", {"last_n": 64, "repeat": 1.0}),
    ("dry", {"multiplier": 0.0}),
    ("top_n_sigma", {"n": -1.0}),
    ("top_k", {"k": 40}),
    ("typ_p", {"p": 1.0}),
    ("top_p", {"p": 0.95}),
    ("min_p", {"p": 0.05}),
    ("xtc", {"probability": 0.0, "threshold": 0.1}),
]


@pytest.fixture(scope="module")
def context(tiny_llama: Path) -> Iterator[Context]:
    """A context whose last batch was one token with logits, at row 0."""
    with Model.load(tiny_llama, 900_002) as model:
        context = open_context(model)
        context.vocab = model.vocab  # type: ignore[attr-defined]
        one = np.array([5], np.int32)
        assert context.step(one, one * 0, one * 0, np.ones(1, np.int8), np.zeros(1, np.int32)).code == 0
        yield context


def make(context: Context, *steps: Step, grammar: str = "") -> Sampler:
    return Sampler(context.vocab, steps, grammar=grammar)  # type: ignore[attr-defined]


def draw(context: Context, sampler: Sampler, n: int) -> list[int]:
    drawn = []
    for _ in range(n):
        drawn.append(sampler.sample(context, 0))
        sampler.accept(drawn[-1])
    return drawn


def best(context: Context) -> int:
    return int(np.argmax(context.logits(0)))


def test_greedy_is_the_largest_logit(context: Context) -> None:
    """C.4: by the greedy sampler, by temperature 0 or less, and by top_k 1."""
    chains: list[list[Step]] = [
        [("greedy", {})],
        [*DEFAULT_CHAIN, ("temperature", {"t": 0.0}), ("dist", {"seed": 1})],
        [*DEFAULT_CHAIN, ("temperature", {"t": -1.0}), ("dist", {"seed": 2})],
        [("top_k", {"k": 1}), ("temperature", {"t": 5.0}), ("dist", {"seed": 3})],
    ]
    for steps in chains:
        assert draw(context, make(context, *steps), 5) == [best(context)] * 5


def test_a_seed_repeats_the_draw(context: Context) -> None:
    """C.4: the same seed, the same tokens; another seed, others; -1 draws a seed and tells it."""

    def hot(seed: int) -> Sampler:
        return make(context, ("temperature", {"t": 3.0}), ("dist", {"seed": seed}))

    first = draw(context, hot(7), 30)
    assert draw(context, hot(7), 30) == first != draw(context, hot(8), 30)
    assert hot(7).seed == 7
    random = hot(-1)
    assert random.seed != 0xFFFFFFFF
    assert draw(context, random, 30) == draw(context, hot(random.seed), 30)


def test_reset_and_clone(context: Context) -> None:
    """D.2: reset returns to the beginning; a clone goes its own way from where it was made."""
    sampler = make(context, ("penalties", {"repeat": 1.5}), ("temperature", {"t": 3.0}), ("dist", {"seed": 7}))
    first = draw(context, sampler, 20)
    clone = sampler.clone()
    onward = draw(context, sampler, 20)
    assert draw(context, clone, 20) == onward != first
    sampler.reset()
    assert draw(context, sampler, 20) == first


def test_bias_forbids_and_favours(context: Context) -> None:
    """C.4: -inf forbids a token, a large bias forces one."""
    forbidden = make(context, ("logit_bias", {"bias": [(best(context), -np.inf)]}), ("greedy", {}))
    assert draw(context, forbidden, 1) == [int(np.argsort(context.logits(0))[-2])]
    assert draw(context, make(context, ("logit_bias", {"bias": [(17, 1000.0)]}), ("greedy", {})), 1) == [17]


def test_penalties_count_accepted_tokens(context: Context) -> None:
    """C.4: of the prompt as well as generated ones."""
    for generated in (True, False):
        sampler = make(context, ("penalties", {"last_n": 8, "presence": 1000.0}), ("greedy", {}))
        sampler.accept(best(context), generated=generated)
        assert draw(context, sampler, 1) != [best(context)]


@pytest.mark.parametrize("grammar_first", [False, True])
def test_a_grammar_rules(context: Context, grammar_first: bool) -> None:
    """C.4: only what it permits is drawn, down to the end token, whatever the chain would like."""
    sampler = make(context, ("greedy", {}), grammar='root ::= "no" "!"')
    text = b""
    for _ in range(4):
        token = sampler.sample(context, 0, grammar_first=grammar_first)
        sampler.accept(token)
        text += context.vocab.piece(token)  # type: ignore[attr-defined]
        if context.vocab.is_eog(token):  # type: ignore[attr-defined]
            break
    assert text == b"no!</s>"


def test_prompt_tokens_do_not_move_the_grammar(context: Context) -> None:
    """C.4: and a token that it forbids is an error, not the end of the process."""
    sampler = make(context, ("greedy", {}), grammar='root ::= "x"')
    a, x = (int(context.vocab.tokenize(c, False, False)[0]) for c in "ax")  # type: ignore[attr-defined]
    sampler.accept(a, generated=False)
    assert sampler.sample(context, 0) == x
    with pytest.raises(ServerError):
        sampler.accept(a)


def test_candidates_are_sorted_probabilities(context: Context) -> None:
    """B.3: for post-sampling probabilities."""
    sampler = make(context, *DEFAULT_CHAIN, ("temperature", {"t": 0.8}), ("dist", {"seed": 1}))
    drawn = sampler.sample(context, 0)
    tokens, probabilities = sampler.candidates(100)
    assert 1 <= len(tokens) <= 40 and tokens[0] == best(context)
    assert drawn in tokens
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5) and (np.diff(probabilities) <= 0).all()
    assert len(sampler.candidates(1)[0]) == 1


@pytest.mark.parametrize("last", ["mirostat", "mirostat_v2"])
def test_mirostat_runs(context: Context, last: str) -> None:
    """C.4: both versions draw tokens of the vocabulary and repeat with their seed."""
    steps: list[Step] = [("temperature", {"t": 1.0}), (last, {"tau": 5.0, "eta": 0.1, "seed": 3})]
    assert draw(context, make(context, *steps), 20) == draw(context, make(context, *steps), 20)


@pytest.mark.parametrize(
    ("steps", "field"),
    [
        ([], "samplers"),
        ([("top_k", {"k": 1})], "samplers"),
        ([("no_such", {}), ("greedy", {})], "samplers"),
        ([("top_k", {}), ("greedy", {})], "samplers"),
        ([("penalties", {"repeat": 0.0}), ("greedy", {})], "repeat_penalty"),
        ([("penalties", {"frequency": float("nan")}), ("greedy", {})], "frequency_penalty"),
        ([("logit_bias", {"bias": [(10**6, 1.0)]}), ("greedy", {})], "logit_bias"),
    ],
)
def test_bad_steps_are_refused_by_name(context: Context, steps: list[Step], field: str) -> None:
    """B.0: the field is named."""
    with pytest.raises(InvalidRequest) as refusal:
        make(context, *steps)
    assert refusal.value.field == field


@pytest.mark.parametrize("grammar", ["root ::= (", "not a grammar", "root ::= missing", 'other ::= "x"', 'root ::= root "x"'])
def test_bad_grammars_are_refused(context: Context, grammar: str) -> None:
    """B.0: unparsable, unfinished, without a root, left-recursive."""
    with pytest.raises(InvalidRequest) as refusal:
        make(context, ("greedy", {}), grammar=grammar)
    assert refusal.value.field == "grammar"
