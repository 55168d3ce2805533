"""Prompts in host memory: what slots held, with its snapshots, until a prompt comes that begins alike.  Pure book-keeping.

Oldest first.  What all entries take never exceeds the limits, the new one included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lsm.engine.checkpoints import Checkpoints, State
from lsm.engine.prefix import Tokens, common_prefix
from lsm.engine.prompt import Span, whole_prefix

OVERLAP_MIN = 0.25  # of an entry; with less the rest of a long prompt would be lost for a short one


Scales = tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Tokens in a memory, shape (n,), int32, the media among them, and the scales of the LoRA adapters that made it; None: several did."""

    tokens: Tokens
    spans: tuple[Span, ...] = ()
    adapters: Scales | None = ()

    def shared(self, other: Held) -> int:
        """How many rows both begin with, which end no media chunk half way; nothing where other adapters acted."""
        if self.adapters is None or self.adapters != other.adapters:
            return 0
        return whole_prefix(common_prefix(self.tokens, other.tokens), self.spans, other.spans)


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """`state`: (n,) uint8, everything that the memory held of the sequence."""

    held: Held
    state: State
    checkpoints: Checkpoints = ()

    @property
    def size_bytes(self) -> int:
        return self.state.nbytes + self.held.tokens.nbytes + sum(entry.state.nbytes for entry in self.checkpoints)


class PromptCache:
    """`limit_bytes`: None is without limit.  `limit_tokens` is raised to what fits into the bytes, if these are limited."""

    def __init__(self, limit_bytes: int | None, limit_tokens: int) -> None:
        self.limit_bytes = limit_bytes
        self.limit_tokens = limit_tokens
        self.hits = 0
        self._entries: list[Entry] = []

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self)

    @property
    def n_tokens(self) -> int:
        return sum(len(entry.held.tokens) for entry in self)

    def has(self, held: Held) -> bool:
        """Whether some entry begins with all of it."""
        return any(entry.held.shared(held) == len(held.tokens) for entry in self)

    def make_room(self, held: Held, size_bytes: int) -> bool:
        """Drop what `held` contains, then the oldest, until so many bytes fit.  False, and nothing is dropped: they never do."""
        if self.limit_bytes is not None and size_bytes > self.limit_bytes:
            return False
        self._entries = [old for old in self._entries if old.held.shared(held) < len(old.held.tokens)]
        while self.limit_bytes is not None and self.size_bytes + size_bytes > self.limit_bytes:
            self.drop_oldest()
        return True

    def drop_oldest(self) -> bool:
        """Whether there was one."""
        return bool(self._entries) and self._entries.pop(0) is not None

    def add(self, entry: Entry) -> None:
        """Room must have been made."""
        self._entries.append(entry)
        while self.n_tokens > self._tokens_max() and len(self._entries) > 1:
            self.drop_oldest()

    def _tokens_max(self) -> float:
        if self.limit_bytes is None:
            return self.limit_tokens
        return max(self.limit_tokens, self.limit_bytes * self.n_tokens / self.size_bytes)

    def take(self, held: Held) -> Entry | None:
        """The entry that begins with all of it.  It leaves."""
        found = next((entry for entry in self._entries if entry.held.shared(held) == len(held.tokens)), None)
        if found is not None:
            self._entries.remove(found)
        return found

    def take_better(self, held: Held, prompt: Held) -> Entry | None:
        """The entry that serves the prompt better than `held` does: with more of the prompt, and less of itself in vain.  It leaves."""
        shared = held.shared(prompt)
        best, most = None, (shared / len(held.tokens) if len(held.tokens) else -1.0, shared / len(prompt.tokens))
        for entry in self._entries:
            shared = entry.held.shared(prompt)
            kept, served = shared / len(entry.held.tokens), shared / len(prompt.tokens)
            if kept >= OVERLAP_MIN and kept > most[0] and served > most[1]:
                best, most = entry, (kept, served)
        if best is not None:
            self._entries.remove(best)
            self.hits += 1
        return best
