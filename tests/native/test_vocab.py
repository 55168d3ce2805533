"""Text to tokens and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.errors import InvalidRequest
from lsm.native.model import Model
from lsm.native.vocab import Vocab


@pytest.fixture(scope="module")
def smollm2(real_model: Callable[[str], Path]) -> Iterator[Model]:
    with Model.load(real_model("smollm2"), 900_001) as model:
        model.memory.release("weights")  # for the whole module: none of this needs them
        yield model


@pytest.fixture(scope="module")
def vocab(smollm2: Model) -> Vocab:
    return smollm2.vocab


def test_any_text_comes_back(tiny_llama: Path, owner: int) -> None:
    """B.2: tokenize then detokenize gives the same bytes, where the vocabulary has all of them; its own mark for a space excepted."""
    with Model.load(tiny_llama, owner) as model:

        @given(st.text(st.characters(codec="utf-8", exclude_characters="\u2581")))
        def holds(text: str) -> None:
            tokens = model.vocab.tokenize(text, False, False)
            assert tokens.dtype == np.int32
            assert model.vocab.detokenize(tokens) == text.encode()

        holds()


def test_pieces_together_are_the_text(vocab: Vocab) -> None:
    """B.2: also where a character is split between tokens."""

    @given(st.text(alphabet="aé🦙漢 \n", max_size=50))
    def holds(text: str) -> None:
        assert b"".join(vocab.piece(int(t)) for t in vocab.tokenize(text, False, False)) == text.encode()

    holds()


def test_a_lone_surrogate_becomes_a_question_mark(vocab: Vocab) -> None:
    """B.2: it has no UTF-8, and llama.cpp takes nothing else."""
    assert vocab.detokenize(vocab.tokenize("a\ud800b", False, False)) == b"a?b"


def test_special_tokens_are_parsed_and_written_only_on_request(vocab: Vocab) -> None:
    """B.2: `parse_special` and `special`."""
    text = "<|im_start|>user"
    parsed, plain = vocab.tokenize(text, False, True), vocab.tokenize(text, False, False)
    assert len(parsed) == 2 and len(plain) > 2
    start = int(parsed[0])
    assert (vocab.piece(start), vocab.piece(start, special=False)) == (b"<|im_start|>", b"")
    assert vocab.detokenize(parsed) == text.encode()
    assert vocab.detokenize(parsed, unparse_special=False) == b"user"


def test_the_beginning_is_added_where_the_model_wants_it(tiny_llama: Path, owner: int) -> None:
    """B.2: `add_special`."""
    with Model.load(tiny_llama, owner) as model:
        with_bos, without = (model.vocab.tokenize("the", add, False).tolist() for add in (True, False))
        assert model.vocab.add_bos and with_bos == [model.vocab.bos, *without]


def test_end_tokens_are_known(vocab: Vocab) -> None:
    """B.2: <|im_end|> ends an answer of SmolLM2, a word does not."""
    end = int(vocab.tokenize("<|im_end|>", False, True)[0])
    assert vocab.is_eog(end) and end == vocab.eos
    assert not vocab.is_eog(int(vocab.tokenize("hello", False, False)[0]))


def test_tokens_outside_of_the_vocabulary_are_refused(vocab: Vocab) -> None:
    """B.2: an error rather than the end of the process."""
    for token in (-1, vocab.n_tokens, 2**31 - 1):
        with pytest.raises(InvalidRequest, match=str(token)):
            vocab.piece(token)
        with pytest.raises(InvalidRequest, match=str(token)):
            vocab.detokenize([token])


def test_long_texts_and_zero_bytes(vocab: Vocab) -> None:
    """B.2: more tokens than the first guess of their number, and text with NUL in it."""
    text = "\x00".join("🦙漢é" for _ in range(2000))
    assert vocab.detokenize(vocab.tokenize(text, False, False)) == text.encode()


def test_what_the_file_says(smollm2: Model) -> None:
    """B.4: facts for /props and /v1/models."""
    assert smollm2.architecture == "llama" and smollm2.meta("general.architecture") == "llama"
    assert smollm2.meta("no.such.key") is None
    assert smollm2.vocab.n_tokens == 49152 and smollm2.n_embd == 576 and smollm2.n_ctx_train > 0
    assert 1.3e8 < smollm2.n_params < 1.4e8 and smollm2.size_bytes > 9e7
    assert "135M" in smollm2.description or "Q4_1" in smollm2.description
    template = smollm2.chat_template()
    assert template is not None and "<|im_start|>" in template
    assert not smollm2.has_encoder and not smollm2.is_recurrent and smollm2.n_swa == 0
