"""Prompts of text and media, without a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.prefix import common_prefix
from lsm.engine.prompt import Span, placeholders, position, positions, text_end, text_tokens, whole_prefix

CAT, DOG = Span(2, 4, 4, "cat"), Span(2, 4, 4, "dog")


def test_placeholders_follow_from_the_content_and_are_no_tokens() -> None:
    """D.2: slots are compared by what is in them."""
    cat, dog = placeholders("cat", 3), placeholders("dog", 3)
    assert cat.dtype == np.int32 and cat.shape == (3,)
    assert (cat == placeholders("cat", 3)).all() and (cat != dog).all()
    assert cat.max() < -1 and dog.max() < -1


@pytest.mark.parametrize(
    ("n", "one", "other", "kept"),
    [
        (1, (CAT,), (CAT,), 1),
        (2, (CAT,), (CAT,), 2),
        (4, (CAT,), (CAT,), 2),
        (6, (CAT,), (CAT,), 6),
        (9, (CAT,), (CAT,), 9),
        (6, (CAT,), (DOG,), 2),
        (9, (CAT, Span(6, 4, 4, "cow")), (CAT, Span(6, 4, 4, "cow")), 6),
        (9, (CAT, Span(8, 4, 4, "cow")), (CAT,), 8),
        (9, (), (CAT,), 2),
        (9, (), (), 9),
        (6, (CAT,), (Span(2, 4, 2, "cat"),), 2),
    ],
)
def test_a_prefix_ends_no_chunk_half_way(n: int, one: tuple[Span, ...], other: tuple[Span, ...], kept: int) -> None:
    """S31, D.2: media are kept as a whole, and only the same ones."""
    assert whole_prefix(n, one, other) == whole_prefix(n, other, one) == kept


def test_positions_count_what_the_chunks_before_take() -> None:
    """D.2: with M-RoPE an image takes fewer positions than it has embeddings."""
    spans = (Span(2, 6, 3, "cat"), Span(9, 4, 1, "dog"))
    assert [position(n, spans) for n in (0, 2, 8, 9, 13, 15)] == [0, 2, 5, 6, 7, 9]


def test_each_row_has_a_position() -> None:
    """S31: an image of one moment stands at the first of those that it takes, others at each."""
    spans = (Span(1, 3, 2, "cat", is_moment=True), Span(5, 2, 2, "sound"))
    assert positions(8, spans).tolist() == [0, 1, 1, 1, 3, 4, 5, 6]
    assert positions(0, ()).tolist() == []


def test_text_ends_where_the_next_chunk_begins() -> None:
    spans = (Span(2, 6, 6, "cat"), Span(9, 4, 4, "dog"))
    assert [text_end(n, 20, spans) for n in (0, 2, 8, 9, 13)] == [2, 2, 9, 9, 20]


prompts = st.lists(st.one_of(st.integers(0, 2), st.sampled_from(["cat", "dog"])), max_size=8)


def laid_out(parts: list[int | str]) -> tuple[np.ndarray, tuple[Span, ...]]:
    rows, spans = [np.zeros(0, np.int32)], []
    n = 0
    for part in parts:
        rows.append(placeholders(part, 3) if isinstance(part, str) else np.array([part], np.int32))
        if isinstance(part, str):
            spans.append(Span(n, 3, 3, part))
        n += len(rows[-1])
    return np.concatenate(rows), tuple(spans)


@given(prompts, prompts)
def test_the_common_prefix_of_two_prompts_is_that_of_their_parts(one: list[int | str], other: list[int | str]) -> None:
    """D.2: what both begin with, part for part."""
    n_parts = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    (a, a_spans), (b, b_spans) = laid_out(one), laid_out(other)
    assert whole_prefix(common_prefix(a, b), a_spans, b_spans) == len(laid_out(one[:n_parts])[0])
    assert text_tokens(a).tolist() == [part for part in one if isinstance(part, int)]
