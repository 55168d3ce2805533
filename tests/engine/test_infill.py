"""B.3: the prompts of /infill and of reranking, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.engine.infill import infill_prompt
from lsm.engine.ranking import rank_prompt
from lsm.errors import NotSupported
from lsm.values import Infill

BOS, EOS, SEP = 256, 257, 258
PRE, SUF, MID, REP, FILE = 300, 301, 302, 303, 304


@dataclass
class Bytes:
    """Tokens are bytes; `<s>` is the one special token that a text can name."""

    bos: int | None = BOS
    eos: int | None = EOS
    sep: int | None = SEP
    add_bos: bool = True
    add_eos: bool = True
    add_sep: bool = False
    fim_pre: int | None = PRE
    fim_suf: int | None = SUF
    fim_mid: int | None = MID
    fim_rep: int | None = None
    fim_sep: int | None = None

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> np.ndarray:
        assert not add_special
        parts = text.split("<s>") if parse_special else [text]
        ids: list[int] = list(parts[0].encode())
        for part in parts[1:]:
            ids += [BOS, *part.encode()]
        return np.array(ids, np.int32)


def prompt(infill: Infill, vocab: Bytes | None = None, n_ctx: int = 4096, max_tokens: int = -1, suffix_first: bool = False) -> list[int]:
    return infill_prompt(vocab or Bytes(), infill, n_ctx, max_tokens, suffix_first).tolist()


def ids(text: str) -> list[int]:
    return list(text.encode())


def test_prefix_suffix_middle() -> None:
    """B.3: [BOS][PRE]prefix prompt[SUF]suffix[MID]; --spm-infill turns the two round."""
    gap = Infill(prefix="ab", suffix="yz", prompt="c")
    assert prompt(gap) == [BOS, PRE, *ids("abc"), SUF, *ids("yz"), MID]
    assert prompt(gap, suffix_first=True) == [BOS, SUF, *ids("yz"), PRE, *ids("abc"), MID]
    assert prompt(gap, Bytes(add_bos=False))[0] == PRE


def test_code_that_names_special_tokens_stays_text() -> None:
    """B.3: in a file they are characters; the prompt may mean them."""
    assert prompt(Infill(prefix="<s>", suffix="<s>", prompt="<s>")) == [BOS, PRE, *ids("<s>"), BOS, SUF, *ids("<s>"), MID]


def test_other_files_come_before_by_name() -> None:
    """B.3: with the tokens of a repository, and with a line of dashes where the model has none."""
    gap = Infill(prefix="a", suffix="z", extra=(("one.py", "1"), ("two.py", "2")))
    inner = [BOS, PRE, *ids("a"), SUF, *ids("z"), MID]
    named = [REP, *ids("myproject\n"), FILE, *ids("one.py\n1"), FILE, *ids("two.py\n2"), FILE, *ids("filename\n")]
    assert prompt(gap, Bytes(fim_rep=REP, fim_sep=FILE)) == named + inner
    divider = ids("\n\n--- snippet ---\n\n")
    assert prompt(gap) == [*divider, *ids("1"), *divider, *ids("2"), *inner]


def test_of_a_long_text_the_part_near_the_gap_stays() -> None:
    """B.3: three quarters for what is before, one for what is after."""
    made = prompt(Infill(prefix="a" * 5000 + "b", suffix="y" + "z" * 5000), n_ctx=10_000)
    before, after = made[2 : made.index(SUF)], made[made.index(SUF) + 1 : -1]
    assert (len(before), before[-1]) == (1536, ord("b"))
    assert (len(after), after[0]) == (510, ord("y"))


def test_missing_tokens_are_named() -> None:
    """B.3: 501."""
    with pytest.raises(NotSupported, match=r"^Infill is not supported by this model: suffix token is missing.$"):
        prompt(Infill(prefix="a", suffix="b"), Bytes(fim_suf=None))


@given(st.integers(0, 6000), st.integers(0, 6000), st.integers(0, 6000), st.integers(64, 4000), st.integers(-1, 2000), st.booleans())
def test_the_prompt_leaves_room_for_its_answer(
    n_before: int, n_after: int, n_extra: int, n_ctx: int, max_tokens: int, suffix_first: bool
) -> None:
    """B.3: whatever is sent, the slot takes it, and an answer of the length that was asked for, or of half the slot."""
    gap = Infill(prefix="a" * n_before, suffix="z" * n_after, extra=(("f", "x" * n_extra),))
    made = prompt(gap, n_ctx=n_ctx, max_tokens=max_tokens, suffix_first=suffix_first)
    assert len(made) + min(max(max_tokens, 0), n_ctx // 2) < n_ctx


@pytest.mark.parametrize(
    ("vocab", "expected"),
    [
        (Bytes(), [BOS, *ids("q"), EOS, *ids("d"), EOS]),
        (Bytes(add_sep=True), [BOS, *ids("q"), EOS, SEP, *ids("d"), EOS]),
        (Bytes(eos=None), [BOS, *ids("q"), SEP, *ids("d"), SEP]),
        (Bytes(add_bos=False, add_eos=False), [*ids("q"), *ids("d")]),
    ],
)
def test_a_pair_has_the_special_tokens_of_its_vocabulary(vocab: Bytes, expected: list[int]) -> None:
    """B.5: beginning, end, and what divides; a text that names one of them is text."""
    assert rank_prompt(vocab, "", "q", "d").tolist() == expected
    assert BOS not in rank_prompt(vocab, "", "<s>", "d").tolist()[1:]


def test_a_models_own_template_for_pairs() -> None:
    """B.5: both places are filled once; a query that looks like a place is none."""
    assert rank_prompt(Bytes(), "<s>{query}|{document}", "{document}", "d").tolist() == [BOS, *ids("{document}|d")]
