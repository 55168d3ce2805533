"""From options to a chain of samplers: llama-server's order and meaning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from lsm.engine.sampling import chain, check, looks_back, within_context
from lsm.errors import InvalidRequest
from lsm.values import Sampling

ALL_ON = Sampling(
    repeat_penalty=1.1,
    dry_multiplier=0.5,
    top_n_sigma=2.0,
    top_k=5,
    typical_p=0.9,
    top_p=0.8,
    min_p=0.1,
    xtc_probability=0.3,
    temperature=0.7,
)


def names(sampling: Sampling, eog: tuple[int, ...] = ()) -> list[str]:
    return [name for name, _ in chain(sampling, eog, seed=1)]


def params(sampling: Sampling, wanted: str) -> dict[str, Any]:
    return next(dict(values) for name, values in chain(sampling, (), seed=7) if name == wanted)


def test_all_samplers_stand_in_llama_servers_order() -> None:
    """C.4 samplers: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature, then the draw."""
    assert names(ALL_ON) == ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature", "dist"]


def test_the_order_can_be_chosen() -> None:
    """B.2 samplers: a list of names; those not named are not used."""
    assert names(replace(ALL_ON, samplers=("temperature", "top_k"))) == ["temperature", "top_k", "dist"]


def test_the_defaults_use_four_samplers() -> None:
    """C.4 defaults: top_k 40, top_p 0.95, min_p 0.05, temperature 0.8; the others do nothing."""
    assert names(Sampling()) == ["top_k", "top_p", "min_p", "temperature", "dist"]
    assert params(Sampling(), "top_k") == {"k": 40}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"repeat_last_n": 0}, "penalties"),
        ({"repeat_penalty": 1.0}, "penalties"),
        ({"dry_multiplier": 0.0}, "dry"),
        ({"dry_base": 0.5}, "dry"),
        ({"dry_penalty_last_n": 0}, "dry"),
        ({"top_n_sigma": -1.0}, "top_n_sigma"),
        ({"top_k": 0}, "top_k"),
        ({"typical_p": 1.0}, "typ_p"),
        ({"top_p": 1.0}, "top_p"),
        ({"min_p": 0.0}, "min_p"),
        ({"xtc_probability": 0.0}, "xtc"),
        ({"xtc_threshold": 0.6}, "xtc"),
        ({"temperature": 1.0}, "temperature"),
    ],
)
def test_a_sampler_that_would_do_nothing_is_left_out(change: dict[str, Any], gone: str) -> None:
    """C.4: the values that switch a sampler off."""
    assert gone in names(ALL_ON)
    assert names(replace(ALL_ON, **change)) == [name for name in names(ALL_ON) if name != gone]


def test_biases_come_first_and_ignore_eos_forbids_the_ends() -> None:
    """B.2 logit_bias, ignore_eos: as -inf on every token that ends a generation."""
    sampling = Sampling(logit_bias=((5, 1.5),), ignore_eos=True)
    assert chain(sampling, (2, 9), seed=1)[0] == ("logit_bias", {"bias": ((5, 1.5), (2, -math.inf), (9, -math.inf))})
    assert "logit_bias" not in names(Sampling(), eog=(2, 9))


def test_temperature_zero_takes_the_best_token() -> None:
    """B.2 temperature 0: the chain that can only give the best token is the best token."""
    assert names(Sampling(temperature=0)) == ["greedy"]
    assert names(Sampling(temperature=0, repeat_penalty=1.1, logit_bias=((1, 1.0),))) == ["logit_bias", "penalties", "greedy"]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0, typical_p=0.5),
        Sampling(temperature=0, xtc_probability=0.5),
        Sampling(temperature=0, dynatemp_range=0.5),
        Sampling(temperature=0, samplers=("top_k",)),
        Sampling(temperature=0, samplers=("top_k", "penalties", "temperature"), repeat_penalty=1.1),
        Sampling(temperature=0.01),
    ],
)
def test_a_chain_that_may_give_another_token_stays_whole(sampling: Sampling) -> None:
    """C.4: with these, temperature 0 or not, the draw may differ from the best token."""
    assert names(sampling)[-1] == "dist"


@pytest.mark.parametrize(("version", "name"), [(1, "mirostat"), (2, "mirostat_v2")])
def test_mirostat_takes_the_place_of_all_but_the_temperature(version: int, name: str) -> None:
    """C.4 mirostat."""
    sampling = replace(ALL_ON, mirostat=version, logit_bias=((1, 1.0),))
    assert names(sampling) == ["logit_bias", "temperature", name]
    assert params(sampling, name) == {"seed": 7, "tau": 5.0, "eta": 0.1}


def test_the_seed_reaches_whatever_draws() -> None:
    """B.2 seed."""
    assert params(ALL_ON, "dist") == {"seed": 7}
    assert params(ALL_ON, "xtc")["seed"] == 7


def test_only_penalties_and_dry_look_back() -> None:
    """C.4 repeat_last_n, dry_penalty_last_n: the longer one counts."""
    assert looks_back(chain(Sampling(), (), 1)) == 0
    assert looks_back(chain(replace(ALL_ON, repeat_last_n=10, dry_penalty_last_n=30), (), 1)) == 30
    assert looks_back(chain(replace(ALL_ON, repeat_last_n=10, dry_multiplier=0.0), (), 1)) == 10


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": math.inf}, "top_p"),
        ({"repeat_penalty": 0.0}, "repeat_penalty"),
        ({"repeat_last_n": -1}, "repeat_last_n"),
        ({"dry_allowed_length": -1}, "dry_allowed_length"),
        ({"min_keep": -1}, "min_keep"),
        ({"mirostat": 3}, "mirostat"),
        ({"seed": 2**32}, "seed"),
        ({"seed": -2}, "seed"),
        ({"samplers": ("top_k", "bogus")}, "samplers"),
        ({"dry_multiplier": 1.0, "dry_sequence_breakers": ()}, "dry_sequence_breakers"),
        ({"logit_bias": ((100, 1.0),)}, "logit_bias"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias"),
        ({"logit_bias": ((1, math.nan),)}, "logit_bias"),
        ({"logit_bias": ((1, math.inf),)}, "logit_bias"),
    ],
)
def test_what_no_sampler_can_be_made_of_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    """B.2: 400 `Field '<name>': ...`."""
    with pytest.raises(InvalidRequest) as refused:
        check(replace(Sampling(), **change), n_vocab=100)
    assert refused.value.field == field


def test_what_is_allowed_is_allowed() -> None:
    """B.2: the limits themselves."""
    for sampling in (Sampling(), ALL_ON, Sampling(seed=2**32 - 1), Sampling(logit_bias=((99, -math.inf), (0, 2.0))), Sampling(mirostat=2)):
        check(sampling, n_vocab=100)


@pytest.mark.parametrize("name", ["repeat_last_n", "dry_penalty_last_n"])
def test_nothing_looks_back_further_than_the_slot_reaches(name: str) -> None:
    """B.2 repeat_last_n, dry_penalty_last_n: llama.cpp takes memory for all of it, 16 GB for the largest; a slot has n_ctx tokens."""
    assert getattr(within_context(replace(Sampling(), **{name: 2**31 - 1}), 512), name) == 512
    assert getattr(within_context(replace(Sampling(), **{name: 7}), 512), name) == 7


@pytest.mark.parametrize("name", ["top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_keep"])
def test_counts_fit_into_llama_cpps_numbers(name: str) -> None:
    """B.2: 2**31 - 1 is the most; a door that does not check gets InvalidRequest, not an overflow."""
    check(replace(Sampling(), **{name: 2**31 - 1}), 100)
    for count in (-1, 2**31, 2**70):
        with pytest.raises(InvalidRequest, match=name):
            check(replace(Sampling(), **{name: count}), 100)


@pytest.mark.parametrize("breakers", [("x",) * 17, ("x" * 257,), ("\u00e9" * 129,), ("a\0b",), ("\ud800",)])
def test_breakers_are_few_and_short(breakers: tuple[str, ...]) -> None:
    """B.2 dry_sequence_breakers: llama.cpp compares each with the whole vocabulary while every other request waits."""
    check(Sampling(dry_multiplier=1.0, dry_sequence_breakers=("x" * 256,) * 16), 100)
    with pytest.raises(InvalidRequest, match="dry_sequence_breakers"):
        check(Sampling(dry_multiplier=1.0, dry_sequence_breakers=breakers), 100)


@pytest.mark.parametrize("grammar", ["root ::= " + "(" * 100_000, "root ::= (", "start ::= [a]", 'root ::= "\ud800"'])
def test_a_grammar_is_measured_before_llama_cpp_reads_it(grammar: str) -> None:
    """S33: a text that would end the process by its depth is a 400 of the field `grammar`."""
    with pytest.raises(InvalidRequest) as caught:
        check(Sampling(grammar=grammar), 100)
    assert caught.value.field == "grammar"
