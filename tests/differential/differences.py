"""Where the two servers differ on purpose, or cannot agree: the name of a case, and why.  What is not listed here must be the same."""

from __future__ import annotations

from collections.abc import Mapping

CHOICES = "usage counts the tokens of all answers, not those of the first one only"
WINDOW = "a snapshot of a sliding window is resumed from where it ends, not one token before; and what is still there is used"
DIFFERENCES: Mapping[str, str] = {
    "stop: one begins the other": "the stop string that is complete first ends the text, however it was cut into tokens",
    "choices: chat": CHOICES,
    "choices: completion": CHOICES,
    "slots: from the beginning": "a slot that was asked for by number also takes its prompt out of host memory (--cache-ram)",
    "gemma3 cache: something else": WINDOW,
    "gemma3 cache: back": WINDOW,
}
