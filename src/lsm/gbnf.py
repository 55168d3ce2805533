"""GBNF grammars, read far enough to know that llama.cpp can take them: it recurses as deep, and grows as large, as a text tells it to.

The rules are those that llama.cpp makes of the text: a group and a repetition become rules of their own.  Its search for left recursion
follows everything a rule can begin with, again at each use, so the number of these visits is bounded as the sizes are.
Only the start of a grammar is judged: one that becomes ambiguous later is still slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_TEXT_BYTES = 256 << 10
MAX_DEPTH = 500  # groups within groups
MAX_RULES = 20_000
MAX_ELEMENTS = 1_000_000  # characters, sets and references after repetitions have been written out
MAX_REPEATS = 2_000  # llama.cpp's
MAX_VISITS = 20_000  # rules met on the way to the first characters of one rule
MAX_VISITS_TOGETHER = 2_000_000
TERMINAL = -1

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\r\n]*)
      | (?P<head>[A-Za-z0-9-]+)[ \t]*::=
      | (?P<name>[A-Za-z0-9-]+)
      | "(?P<text>(?:\\.|[^"\\])*)"
      | \[\^?(?P<set>(?:\\.|[^\]\\])*)\]
      | (?P<token>!?<[^>]*>)
      | (?P<any>\.)
      | (?P<open>\() | (?P<close>\)) | (?P<or>\|)
      | (?P<repeat>[*+?])
      | \{\s*(?P<least>[0-9]{1,9})\s*(?P<comma>,)?\s*(?P<most>[0-9]{1,9})?\s*\}""",
    re.VERBOSE | re.DOTALL,
)
_KNOWN_ESCAPE = re.compile(r"""\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[trn\\"\[\]-])""")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(slots=True)
class _Item:
    rule: int  # or TERMINAL
    size: int  # elements
    copies: int = 1


@dataclass(slots=True)
class _Rule:
    name: str
    alternatives: list[list[_Item]] = field(default_factory=list)  # none: not defined
    copies: int = 1  # of itself, one in the other, in place of `x{0,n}`

    def may_be_empty(self) -> bool:
        return any(not items for items in self.alternatives)


def check_grammar(text: str) -> None:
    """Raise ValueError with a sentence if `text` is no grammar with a rule `root`, or too large for llama.cpp.

    A text that passes may still be refused by llama.cpp, which knows the tokens of the model.
    """
    n_bytes = len(text.encode("utf-8", "surrogatepass"))
    if n_bytes > MAX_TEXT_BYTES:
        raise ValueError(f"the grammar has {n_bytes} bytes, at most {MAX_TEXT_BYTES} are possible")
    rules = _Reader().read(text)
    undefined = next((rule.name for rule in rules if not rule.alternatives), None)
    if undefined is not None:
        raise ValueError(f"the grammar uses the rule '{undefined}', but does not define it")
    _check_visits(rules)


class _Reader:
    """A stack of what is open, so that the depth of a text is a number here and not a depth of calls."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._ids: dict[str, int] = {}
        self._open: list[_Rule] = []  # the rule that is being read, and the groups open in it
        self._n_rules = 0
        self._n_elements = 0
        self._last: _Item | None = None  # what a repetition would repeat
        self._is_ended = False  # a line that is whole ends its rule
        self._wants_more = False  # after '::=' and '|' the rule goes on in the next line

    def read(self, text: str) -> list[_Rule]:
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            try:
                if match is None:
                    raise ValueError(f"what starts with {text[position : position + 20]!r} cannot be read")
                self._take(match)
            except ValueError as error:
                line = text.count("\n", 0, position) + 1
                raise ValueError(f"line {line} of the grammar: {error}") from None
            position = match.end()
        if len(self._open) > 1:
            raise ValueError(f"the grammar ends within {len(self._open) - 1} groups: ')' is missing")
        if "root" not in self._ids:
            raise ValueError("the grammar has no rule 'root'")
        return self._rules

    def _take(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if kind == "space":
            is_line_end = match[0][0] != "#" and ("\n" in match[0] or "\r" in match[0])
            self._is_ended |= is_line_end and len(self._open) == 1 and not self._wants_more
            return
        self._wants_more = kind in ("head", "or")
        if kind == "head":
            self._start_rule(match["head"])
        elif self._is_ended:
            raise ValueError("a rule ends with its line; it goes on in the next one after '|', or within a group")
        elif not self._open:
            raise ValueError("a rule must start with its name and '::='")
        elif kind == "name":
            self._add(_Item(self._id_of(match["name"]), 1))
        elif kind in ("text", "set"):
            _check_escapes(match[kind])
            self._add(_Item(TERMINAL, len(match[kind])))
        elif kind in ("token", "any"):
            self._add(_Item(TERMINAL, 1))
        elif kind == "open":
            self._open_group()
        elif kind == "close":
            self._close_group()
        elif kind == "or":
            self._open[-1].alternatives.append([])
            self._last = None
        elif kind == "repeat":
            self._repeat(*_TIMES[match["repeat"]])
        else:
            least, most = int(match["least"]), int(match["most"]) if match["most"] else None
            self._repeat(least, most if match["comma"] else least)

    def _start_rule(self, name: str) -> None:
        if len(self._open) > 1:
            raise ValueError(f"the rule '{name}' starts within {len(self._open) - 1} groups: ')' is missing")
        rule = self._rules[self._id_of(name)]
        rule.alternatives = [[]]
        self._open = [rule]
        self._last = None
        self._is_ended = False

    def _open_group(self) -> None:
        if len(self._open) > MAX_DEPTH:
            raise ValueError(f"groups stand one in the other, at most {MAX_DEPTH} deep is possible")
        name = self._open[-1].name
        id = self._new_rule(name, [[]])
        self._add(_Item(id, 1))
        self._open.append(self._rules[id])
        self._last = None

    def _close_group(self) -> None:
        if len(self._open) == 1:
            raise ValueError("')' closes no group")
        self._open.pop()
        self._last = self._open[-1].alternatives[-1][-1]

    def _add(self, item: _Item) -> None:
        """An empty text adds nothing, so that nothing can be repeated after it."""
        self._last = item if item.size else None
        if item.size:
            self._open[-1].alternatives[-1].append(item)
            self._count(n_elements=item.size)

    def _repeat(self, least: int, most: int | None) -> None:
        """As llama.cpp writes it out: `least` copies, then a rule for the optional rest, or one for each that is optional."""
        item = self._last
        if item is None:
            raise ValueError("there is nothing before this repetition")
        if least > MAX_REPEATS or (most is not None and most < least):
            raise ValueError(f"the repetition from {least} to {most} is not possible, at most {MAX_REPEATS} are")
        items = self._open[-1].alternatives[-1]
        if most is not None and most > MAX_REPEATS:
            most = None
        n_optional = 1 if most is None else most - least
        self._count(n_rules=n_optional, n_elements=item.size * (max(0, least - 1) + n_optional))
        if least == 0:
            items.pop()
        else:
            item.size *= least
            item.copies *= least
        if n_optional:
            once = _Item(item.rule, item.size)
            rest = _Item(self._new_rule(self._open[-1].name, []), 1)
            self._rules[rest.rule].alternatives = [[once, rest] if most is None else [once], []]
            self._rules[rest.rule].copies = n_optional
            items.append(rest)
            self._last = rest

    def _id_of(self, name: str) -> int:
        if name not in self._ids:
            self._ids[name] = self._new_rule(name, [])
        return self._ids[name]

    def _new_rule(self, name: str, alternatives: list[list[_Item]]) -> int:
        self._count(n_rules=1)
        self._rules.append(_Rule(name, alternatives))
        return len(self._rules) - 1

    def _count(self, n_rules: int = 0, n_elements: int = 0) -> None:
        self._n_rules += n_rules
        self._n_elements += n_elements
        if self._n_rules > MAX_RULES:
            raise ValueError(f"rules, groups and repetitions make more than {MAX_RULES} rules")
        if self._n_elements > MAX_ELEMENTS:
            raise ValueError(f"the repetitions written out have more than {MAX_ELEMENTS} elements")


def _check_escapes(text: str) -> None:
    for escape in _ESCAPE.finditer(text):
        if not _KNOWN_ESCAPE.match(text, escape.start()):
            raise ValueError(f"there is no escape {text[escape.start() : escape.start() + 4]!r}")


def _check_visits(rules: list[_Rule]) -> None:
    """Depth first without recursion: a rule is counted when all that it can begin with has been."""
    is_empty = [rule.may_be_empty() for rule in rules]
    begins = [_begins_with(rule, is_empty) for rule in rules]
    n_visits: dict[int, int] = {}
    in_progress: set[int] = set()
    for start in range(len(rules)):
        todo = [start]
        while todo:
            id = todo[-1]
            if id in n_visits:
                todo.pop()
            elif id in in_progress:
                todo.pop()
                in_progress.discard(id)
                n_visits[id] = 1 + sum(n_visits[other] * times for other, times in begins[id])
                if n_visits[id] > MAX_VISITS:
                    raise ValueError(f"the rule '{rules[id].name}' can begin in more than {MAX_VISITS} ways")
            else:
                in_progress.add(id)
                for other, _ in begins[id]:
                    if other in in_progress:
                        raise ValueError(f"the rule '{rules[other].name}' can begin with itself (left recursion)")
                    todo.append(other)
    if sum(n_visits[id] * rule.copies for id, rule in enumerate(rules)) > MAX_VISITS_TOGETHER:
        raise ValueError("the rules of the grammar can begin in too many ways")


def _begins_with(rule: _Rule, is_empty: list[bool]) -> list[tuple[int, int]]:
    """Rules that this one can begin with, and how often each is looked at."""
    found: list[tuple[int, int]] = []
    for items in rule.alternatives:
        for item in items:
            if item.rule == TERMINAL:
                break
            found.append((item.rule, item.copies * rule.copies if is_empty[item.rule] else 1))
            if not is_empty[item.rule]:
                break
    return found
