"""A grammar can ask llama.cpp for more stack, memory or time than there is: it is measured before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lsm.gbnf import MAX_DEPTH, MAX_TEXT_BYTES, check_grammar
from lsm.native.model import Model
from lsm.native.sampler import Sampler


def chain(n: int, body: str) -> str:
    """Rules r0 to rn, each beginning with the next one."""
    return "root ::= r0\n" + "".join(f"r{i} ::= {body.format(i + 1)}\n" for i in range(n)) + f'r{n} ::= "a"\n'


def nested(depth: int) -> str:
    return "root ::= " + "(" * depth + '"a"' + ")" * depth


SOUND = {
    "words": 'root ::= "yes" | "no"',
    "nested": nested(MAX_DEPTH - 1),
    "brackets that open nothing": 'root ::= "((((" [()\\]"] | # ((( "\n  "b"\n',
    "comments and lines": '# a list\nroot ::= item+ # one or more\n\nitem ::= "- " [^\\n]{1,40} "\\n"\n',
    "repetitions": 'root ::= ("a" b{2} b{0,3} b{1,} b?)*\nb ::= "b" [0-9]{2,4}\n',
    "optional beginnings": 'root ::= ws "a" ws\nws ::= | " " | "\\n" [ \\t]{0,20}\n',
    "lines that go on": 'root ::=\n  "a" |\n  # or\n  ("b"\n | "c")+ # the end\n\nb ::= "b"\r\nc ::= "c"',
    "escapes": r'root ::= "\x41\u00e9\U0001F600\t\r\n\\\"\[\]" [\]\[^\-]',
    "named tokens": "root ::= <[5]> !<[6]> .\n",
    "long chain": chain(1_500, "r{0}"),
    "many words": "root ::= " + " | ".join(f'"word {i}"' for i in range(1_000)),
}
REFUSED = {
    "too deep": (nested(MAX_DEPTH + 1), f"at most {MAX_DEPTH} deep"),
    "much too deep": (nested(100_000), f"at most {MAX_DEPTH} deep"),
    "too long": ('root ::= "' + "a" * MAX_TEXT_BYTES + '"', f"at most {MAX_TEXT_BYTES} are possible"),
    "doubled sixty times": (chain(60, 'r{0} | r{0} "x"'), "can begin in more than"),
    "doubled by what may be missing": (chain(60, "r{0}? r{0}?"), "can begin in more than"),
    "chain too long": (chain(15_000, "r{0}"), "can begin in"),
    "rules of repetitions": ("root ::= " + '"a"{0,2000} ' * 11, "more than 20000 rules"),
    "text of repetitions": ('root ::= "' + "a" * 1000 + '"{2000}', "more than 1000000 elements"),
    "repetition of repetitions": ('root ::= "ab"{1000}{1000}', "more than 1000000 elements"),
    "repeated too often": ('root ::= "a"{2001}', "at most 2000"),
    "backwards": ('root ::= "a"{3,2}', "from 3 to 2"),
    "begins with itself": ('root ::= root "a" | "b"', "'root' can begin with itself"),
    "begins with itself later": ('root ::= a\na ::= b? root "x"\nb ::= "b"', "can begin with itself"),
    "no root": ('start ::= "a"', "no rule 'root'"),
    "not defined": ("root ::= other", "uses the rule 'other'"),
    "not closed": ("root ::= (", "')' is missing"),
    "not closed before the next": ('root ::= ("a"\nb ::= "b"', "'b' starts within 1 groups"),
    "not opened": ('# one\nroot ::= "a" )', "line 2 of the grammar: ')' closes no group"),
    "text not ended": ('root ::= "a', "cannot be read"),
    "nothing repeated": ("root ::= *", "nothing before this repetition"),
    "no text repeated": ('root ::= ""*', "nothing before this repetition"),
    "escape that is none": (r'root ::= "\d"', "no escape"),
    "escape that is half": (r"root ::= [\u12]", "no escape"),
    "line that does not go on": ('root ::= "a"\n  | "b"', "line 2 of the grammar: a rule ends with its line"),
    "text after the end": ('root ::= ("a")\n"b"', "a rule ends with its line"),
    "no rule": ('"a"', "must start with its name"),
    "empty": ("", "no rule 'root'"),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_passes_is_taken_by_llama_cpp(case: str, sound_model: Model) -> None:
    """S33: what is within the limits, up to the limits, becomes a sampler."""
    check_grammar(SOUND[case])
    Sampler(sound_model.vocab, [("greedy", {})], grammar=SOUND[case]).close()


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(case: str) -> None:
    """S33: nothing is left to llama.cpp's stack; the sentence names the reason."""
    grammar, reason = REFUSED[case]
    with pytest.raises(ValueError, match=r"grammar|rule") as caught:
        check_grammar(grammar)
    assert reason in str(caught.value)


@pytest.fixture(scope="module")
def sound_model(tiny_llama: Path) -> Iterator[Model]:
    with Model.load(tiny_llama, 900_020) as model:
        yield model
