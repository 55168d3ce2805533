"""The in-process door: embeddings, ranking and infill, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lsm_embed
import numpy as np
import pytest
from lsm_embed.mode_arguments import infill_of, inputs_of, norm_of, texts_of

from lsm.api import Infill
from lsm.errors import InvalidRequest, NotFound
from tests.transports.scripted_host import open_scripted_host


@pytest.fixture(scope="module")
def model() -> Iterator[lsm_embed.Model]:
    with lsm_embed.open({"echo": "echo.gguf"}, open_host=open_scripted_host, embeddings=True) as models:
        yield models["echo"]


def test_vectors_are_rows_of_one_array(model: lsm_embed.Model) -> None:
    """B.5: float32, a row for each input, in order; one text is a list of one."""
    made = model.embed(["abc", [98, 99]], normalize=-1)
    assert isinstance(made, np.ndarray) and made.dtype == np.float32
    assert made.tolist() == [[3, 97, -1], [2, 98, -1]]
    assert np.array_equal(model.embed("abc"), [[3, 97, 99]])
    assert np.array_equal(model.embed(np.array([98, 99])), [[2, 98, 99]])


def test_scores_are_one_array(model: lsm_embed.Model) -> None:
    """B.5: float32, one for each document, in order."""
    scores = model.rank("cat", ["a cat", "a dog", "cat cat"])
    assert scores.dtype == np.float32 and scores.tolist() == [1, 0, 2]


def test_a_gap_is_filled_whole_and_in_pieces(model: lsm_embed.Model) -> None:
    """B.3: wishes are those of any request."""
    assert model.infill("ab", "yz", prompt="c", extra={"f": "g"}).text == "f=g;ab|c|yz"
    assert model.infill("ab", "yz", max_tokens=3).text == "ab|"
    with model.stream_infill("ab", "yz") as stream:
        assert "".join(stream) == "ab||yz"


@pytest.mark.parametrize("inputs", [7, None, [], np.zeros((0, 2), int), b"abc", {"a": 1}, ["a", 7.5], [[]], [""], "", ["a", ["b"]], [True]])
def test_inputs_that_are_none(inputs: Any) -> None:
    """B.5: refused by the argument's name, before they travel."""
    with pytest.raises(InvalidRequest, match="'inputs'"):
        inputs_of(inputs)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [(1, 2)]),
        (np.array([1, 2]), [(1, 2)]),
        (np.array([[1, 2], [3, 4]]), [(1, 2), (3, 4)]),
        ([[1, 2], "a"], [(1, 2), "a"]),
        (("a",), ["a"]),
    ],
)
def test_inputs_of_each_form(inputs: Any, expected: Any) -> None:
    """B.5: one or several, texts or token ids."""
    assert inputs_of(inputs) == expected


@pytest.mark.parametrize("normalize", [-2, 1001, 1.5, True, "2"])
def test_norms_that_are_none(normalize: Any) -> None:
    """C.2: -1 to 1000, as the flag."""
    with pytest.raises(InvalidRequest, match="'normalize'"):
        norm_of(normalize)


def test_norms() -> None:
    """C.2: nothing said is nothing said."""
    assert (norm_of(None), norm_of(-1), norm_of(2)) == (None, -1, 2)


@pytest.mark.parametrize("texts", ["a", [], 7, ["a", 7], ["\ud800"]])
def test_documents_that_are_none(texts: Any) -> None:
    """B.5: a list of texts."""
    with pytest.raises(InvalidRequest, match="'documents'"):
        texts_of(texts, "documents")


@pytest.mark.parametrize(
    ("arguments", "named"), [((7, "b", "", None), "prefix"), (("a", None, "", None), "suffix"), (("a", "b", 7, None), "prompt"),
                             (("a", "b", "", ["f"]), "extra"), (("a", "b", "", {"f": 7}), "extra")],
)  # fmt: skip
def test_gaps_that_are_none(arguments: tuple[Any, ...], named: str) -> None:
    """B.3: refused by name."""
    with pytest.raises(InvalidRequest, match=f"'{named}'"):
        infill_of(*arguments)


def test_other_files_keep_their_order() -> None:
    """B.3: the most telling one last."""
    assert infill_of("a", "b", "c", {"y": "1", "x": "2"}) == Infill(prefix="a", suffix="b", prompt="c", extra=(("y", "1"), ("x", "2")))


def test_a_model_that_there_is_not() -> None:
    """B.0: as everywhere."""
    with lsm_embed.open({"echo": "echo.gguf"}, open_host=open_scripted_host) as models, pytest.raises(NotFound):
        models["other"].embed("a")
