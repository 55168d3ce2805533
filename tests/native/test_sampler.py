"""Which token is drawn, with logits from a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lsm.errors import InvalidRequest, ServerError
from lsm.native.context import Context
from lsm.native.dry import MAX_KINDS, is_known
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
        first_token(context)
        yield context


def first_token(context: Context, *samplers: Sampler) -> list[int]:
    """The same token alone in as many sequences as there are samplers, or one; what the samplers chose."""
    context.memory_clear()
    n = max(1, len(samplers))
    rows = np.arange(n, dtype=np.int32)
    step = context.step(np.full(n, 5, np.int32), rows * 0, rows, np.ones(n, np.int8), rows, samplers or None)
    assert step.code == 0
    return step.sampled.tolist()


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


def test_probabilities_after_the_chain(context: Context) -> None:
    """B.2 post_sampling_probs: of what the chain left, likeliest first, without those of probability 0; and of the chosen token."""
    sampler = make(context, *DEFAULT_CHAIN, ("temperature", {"t": 0.8}), ("dist", {"seed": 1}))
    seen = sampler.observe(100, after_chain=True)
    drawn = sampler.sample(context, 0)
    values = [value for _, value in seen.top]
    assert 1 <= len(seen.top) <= 40 and seen.top[0][0] == best(context)
    assert dict(seen.top)[drawn] == pytest.approx(seen.chosen)
    assert sum(values) == pytest.approx(1.0, abs=1e-5) and values == sorted(values, reverse=True)
    fewer = make(context, *DEFAULT_CHAIN, ("temperature", {"t": 0.8}), ("dist", {"seed": 1}))
    seen = fewer.observe(1, after_chain=True)
    fewer.sample(context, 0)
    assert len(seen.top) == 1


def test_log_probabilities_are_the_models_own(context: Context) -> None:
    """B.2 n_probs: softmax over all logits, whatever the chain does with them; more than there are tokens gives all of them."""
    sampler = make(context, ("logit_bias", {"bias": [(17, 1000.0)]}), ("greedy", {}))
    seen = sampler.observe(10**6, after_chain=False)
    assert sampler.sample(context, 0) == 17
    logits = context.logits(0).astype(np.float64)
    expected = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    tokens, values = zip(*seen.top, strict=True)
    assert len(tokens) == context.n_vocab and list(tokens[:5]) == np.argsort(-logits, kind="stable")[:5].tolist()
    assert np.allclose(values, expected[list(tokens)], atol=1e-6)
    assert seen.chosen == pytest.approx(expected[17], abs=1e-6)


def test_a_mask_permits_and_a_deferred_choice_waits(context: Context) -> None:
    """Design 6: who defers looks at the token first; a step does not accept it, and `sample` may choose again among what a mask permits."""
    sampler = make(context, ("penalties", {"last_n": 8, "presence": 1000.0}), ("greedy", {}))
    sampler.defer()
    assert first_token(context, sampler) == [best(context)]
    assert sampler.sample(context, 0) == best(context)  # it has not been accepted: no penalty
    mask = np.zeros((context.n_vocab + 31) // 32, np.int32)
    mask[40 // 32] = 1 << 40 % 32
    assert sampler.sample(context, 0, mask=mask) == 40


def test_a_row_without_a_choice_spoils_no_other(context: Context) -> None:
    """D.2: a sampler that is left with nothing gives -1; the other rows of the batch have their tokens."""
    nothing = make(context, ("logit_bias", {"bias": [(token, -np.inf) for token in range(context.n_vocab)]}), ("dist", {"seed": 1}))
    with pytest.raises(ServerError, match="no token"):
        nothing.sample(context, 0)
    assert first_token(context, nothing, make(context, ("greedy", {}))) == [-1, best(context)]
    first_token(context)


def test_a_lazy_grammar_sleeps_until_its_trigger(context: Context) -> None:
    """B.2 grammar_lazy, grammar_triggers: free before the word or the token, bound from there on."""
    a, x, b = (int(context.vocab.tokenize(c, False, False)[0]) for c in "axb")  # type: ignore[attr-defined]
    for triggers in ([x], ["x"]):
        sampler = Sampler(context.vocab, [("greedy", {})], grammar='root ::= "xb"', triggers=triggers)  # type: ignore[attr-defined]
        assert draw(context, sampler, 1) == [best(context)]
        sampler.accept(a)
        sampler.accept(x)
        assert draw(context, sampler, 1) == [b]


def test_dry_is_made_once_and_copied(context: Context) -> None:
    """C.4 dry_sequence_breakers: comparing them with the vocabulary is slow; copies are independent, the oldest kinds are dropped."""
    params = {"multiplier": 2.0, "base": 1.75, "allowed_length": 1, "breakers": ("!",)}
    vocab = context.vocab  # type: ignore[attr-defined]
    assert not is_known(vocab, params)
    first, second = (make(context, ("dry", params), ("greedy", {})) for _ in range(2))
    assert is_known(vocab, params)
    for token in (5, 6, 5, 6, 5):
        first.accept(token)
    kind = next(kind for key, kind in vocab.dry_samplers.items() if dict(key)["breakers"] == ("!",))
    assert draw(context, second, 3) == draw(context, make(context, ("dry", params), ("greedy", {})), 3) and kind
    for i in range(MAX_KINDS):
        make(context, ("dry", params | {"last_n": i + 1}), ("greedy", {})).close()
    assert not is_known(vocab, params) and len(vocab.dry_samplers) == MAX_KINDS


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
