"""From the bytes of tokens to text that may be shown: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs

_new_decoder = codecs.getincrementaldecoder("utf-8")


class TextStream:
    """Feed it the bytes of each token; it returns the text that is certain, in order.

    What comes out does not depend on how the bytes were cut into tokens: it is as if they came one character at a time.  Then the first
    stop string to be complete ends the text; of several that are complete at the same character, the longest.  Text that may still turn
    out to be the beginning of a stop string is held back.  Bytes that are no UTF-8 become U+FFFD, but only once no later byte can
    make a character of them; the beginning of a character at the very end is dropped.
    """

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = tuple(word for word in stop if word)
        self._beginnings = frozenset(word[:n] for word in self._stop for n in range(1, len(word)))
        self._last_of_beginning = frozenset(start[-1] for start in self._beginnings)
        self._longest_beginning = max(map(len, self._beginnings), default=0)
        self._decoder = _new_decoder("replace")
        self._held = ""
        self.stopping_word = ""  # the stop string that was found; no text comes after it

    def feed(self, piece: bytes) -> str:
        """The text that became certain with these bytes; empty once a stop string has been found."""
        return self._release(self._decoder.decode(piece))

    def flush(self) -> str:
        """The rest, when no more bytes come: what was held back, without half a character."""
        rest, self._held = self._held, ""
        return rest

    def _release(self, new: str) -> str:
        if self.stopping_word:
            return ""
        if not self._stop:
            return new
        text = self._held + new
        found = _first_complete(text, self._stop)
        if found is not None:
            start, self.stopping_word = found
            self._held = ""
            return text[:start]
        keep = self._length_of_partial_stop(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _length_of_partial_stop(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        if not text or text[-1] not in self._last_of_beginning:
            return 0
        lengths = range(min(len(text), self._longest_beginning), 0, -1)
        return next((n for n in lengths if text[-n:] in self._beginnings), 0)


def _first_complete(text: str, stop: tuple[str, ...]) -> tuple[int, str] | None:
    """(start, word) of the stop string that ends first, and of those the one that starts first."""
    found = [(text.find(word) + len(word), text.find(word), word) for word in stop if word in text]
    if not found:
        return None
    _, start, word = min(found)
    return start, word
