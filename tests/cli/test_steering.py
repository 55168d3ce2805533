"""C.1: flags of LoRA adapters and control vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.tuning import Steering
from tests.cli.test_arguments import parse, refusal


def test_nothing_acts_beside_the_weights_by_default() -> None:
    """C.1: nothing given."""
    assert parse().steering == Steering() and not Steering().is_used


def test_adapters_are_numbered_in_order_with_their_scales() -> None:
    """C.1 --lora, --lora-scaled: lists, repeated, together."""
    steering = parse("--lora-scaled", "c:d.gguf:0.5,e.gguf:-1", "--lora", "a.gguf,b.gguf", "--lora", "f.gguf").steering
    assert steering.adapters == (
        (Path("a.gguf"), 1.0), (Path("b.gguf"), 1.0), (Path("f.gguf"), 1.0), (Path("c:d.gguf"), 0.5), (Path("e.gguf"), -1.0),
    )  # fmt: skip


def test_adapters_may_wait_to_be_applied() -> None:
    """C.1 --lora-init-without-apply: all scales start at 0."""
    assert parse("--lora-scaled", "a.gguf:0.5", "--lora-init-without-apply").steering.adapters == ((Path("a.gguf"), 0.0),)


def test_control_vectors_and_their_layers() -> None:
    """C.1 --control-vector, --control-vector-scaled, --control-vector-layer-range, which takes two words."""
    steering = parse("--control-vector", "a.gguf", "--control-vector-scaled", "b.gguf:2", "--control-vector-layer-range", "3", "7").steering
    assert steering.control_vectors == ((Path("a.gguf"), 1.0), (Path("b.gguf"), 2.0))
    assert steering.control_vector_layers == (3, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lora", "a.gguf,"), "--lora"),
        (("--lora-scaled", "a.gguf"), "a.gguf:0.5"),
        (("--lora-scaled", "a.gguf:nan"), "a.gguf:0.5"),
        (("--lora-scaled", "a.gguf:1e39"), "a.gguf:0.5"),
        (("--lora-scaled", ":1"), "a.gguf:0.5"),
        (("--control-vector-scaled", "a.gguf:x"), "a.gguf:0.5"),
        (("--control-vector", "a.gguf", "--control-vector-layer-range", "3"), "needs a value"),
        (("--control-vector", "a.gguf", "--control-vector-layer-range", "7", "3"), "the first one first"),
        (("--control-vector", "a.gguf", "--control-vector-layer-range", "0", "3"), "from 1"),
        (("--control-vector-layer-range", "1", "2"), "add --control-vector"),
        (("--lora", "a.gguf", "-m", "other.gguf"), "one model"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], message: str) -> None:
    """C.1: with the remedy."""
    assert message in refusal(*arguments)
