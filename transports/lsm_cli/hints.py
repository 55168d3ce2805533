"""What was meant by a word that the `lsm` command does not know."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Collection, Sequence

from lsm.errors import ConfigError


def refuse_unknown_verb(argv: Sequence[str], verbs: Collection[str]) -> None:
    """Raises ConfigError: the command line begins with a word that is no verb."""
    first = argv[0] if argv else ""
    if first and not first.startswith("-") and first not in verbs:
        raise ConfigError(f"{first!r} is not a verb; {_nearest(first, verbs) or 'there are ' + ', '.join(verbs)}")


def refuse_unknown(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Raises ConfigError for the first of the words that `parser` could not place, if there is one."""
    if not words:
        return
    word = words[0].partition("=")[0]
    if not word.startswith("-"):
        raise ConfigError(f"{word!r} is one word too many; see {parser.prog} --help")
    options = ["--help", *re.findall(r"(?<![\w-])--?[a-z][\w-]*", parser.format_usage())]
    raise ConfigError(f"{word} is not known; {_nearest(word, options) or f'see {parser.prog} --help'}")


def _nearest(word: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""
