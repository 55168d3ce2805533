"""Requests with LoRA scales of their own: who shares a batch, and whose turn it is."""

from __future__ import annotations

import math

import pytest

from lsm.errors import InvalidRequest
from tests.engine.scripted import Bench, continuation, error, result, text_of

PROMPT = [5, 6, 7, 8]
ONE, OTHER = ((0, 1.0),), ((0, 0.5),)


def with_adapters(**limits: object) -> Bench:
    bench = Bench(n_adapters=1, **limits)
    bench.scheduler.cache.adapting.default = (0.0,)
    return bench


def test_only_requests_with_equal_scales_share_a_batch() -> None:
    """B.2 lora: sets take turns; each batch is decoded with the scales of its requests."""
    bench = with_adapters(n_slots=3, n_batch=16)
    for id, lora in (("a", ONE), ("b", OTHER), ("c", ONE)):
        bench.submit(id, PROMPT, max_tokens=2, lora=lora)
    outputs = bench.run()
    assert bench.decoder.calls == [8, 4, 2, 1]
    assert bench.decoder.scales == [(1.0,), (0.5,), (1.0,), (0.5,)]
    assert all(result(outputs, id)[0] == text_of(continuation(PROMPT, 2)) for id in "abc")


def test_a_set_does_not_wait_for_ever_while_others_come_and_go() -> None:
    """P16: whichever has waited longest is next, prompts too, though other answers are always under way."""
    bench = with_adapters(n_slots=3, n_batch=16)
    bench.submit("a0", PROMPT, max_tokens=6, lora=ONE)
    bench.submit("a1", PROMPT, max_tokens=9, lora=ONE)
    bench.scheduler.step()
    bench.submit("b", PROMPT, max_tokens=2, lora=OTHER)
    n_before = len(bench.decoder.calls)
    while not any(output.id == "b" for output in bench.scheduler.outputs()):
        bench.scheduler.step()
        assert len(bench.decoder.calls) <= n_before + 2
    bench.run()


def test_what_other_scales_made_is_no_prefix() -> None:
    """B.2 lora: a slot's cache is of no use where the set is another."""
    bench = with_adapters(n_slots=1)
    bench.answer("a", PROMPT, max_tokens=1, lora=ONE)
    assert bench.answer("b", PROMPT, max_tokens=1, lora=OTHER)[1].timings.cache_n == 0
    assert bench.answer("c", PROMPT, max_tokens=1, lora=OTHER)[1].timings.cache_n == 3


def test_scales_are_set_only_where_they_change() -> None:
    """Design 6: a change makes llama.cpp build its graph anew."""
    bench = with_adapters()
    bench.answer("a", PROMPT, max_tokens=9, lora=ONE)
    assert bench.decoder.scales == [(1.0,)]


@pytest.mark.parametrize("lora", [((1, 1.0),), ((-1, 1.0),), ((0, math.nan),)])
def test_what_is_no_adapter_is_refused(lora: tuple[tuple[int, float], ...]) -> None:
    """B.2 lora: 400 with the name of the field."""
    bench = with_adapters()
    bench.submit("a", PROMPT, lora=lora)
    refused = error(bench.run(), "a")
    assert isinstance(refused, InvalidRequest)
    assert refused.field == "lora"
