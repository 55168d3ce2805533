"""What goes into the engine and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass

from lsm.engine.ports import Media
from lsm.engine.prefix import Tokens
from lsm.engine.slot_content import SlotDone
from lsm.errors import LsmError
from lsm.values import Embedding, Finish, Options, Progress, Text


@dataclass(frozen=True, slots=True)
class Job:
    """A request for tokens.  `id` is the caller's, unique among those that have not ended; `prompt` has shape (n,), int32.

    `media`: what the placeholders in the prompt stand for, in order (`lsm.engine.prompt`).
    `user_starts`: where in it messages of the user begin, growing; none where nobody knows.
    """

    id: str
    prompt: Tokens
    options: Options
    media: tuple[Media, ...] = ()
    user_starts: tuple[int, ...] = ()
    embed: int | None = None  # make an embedding, normalized so (`lsm.engine.normalize`), instead of an answer


@dataclass(frozen=True, slots=True)
class Piece:
    """More of an answer.  Each token of the answer comes exactly once, with the text that it completed or after it; the text may be empty
    in the last piece only."""

    id: str
    text: Text


@dataclass(frozen=True, slots=True)
class Prefilled:
    """More of the prompt is in the cache.  For those who asked to hear of it (`Options.return_progress`)."""

    id: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Ended:
    """One choice has ended."""

    id: str
    finish: Finish | Embedding | SlotDone


@dataclass(frozen=True, slots=True)
class Failed:
    id: str
    error: LsmError


@dataclass(frozen=True, slots=True)
class Cancelled:
    id: str


# Of each choice of one id: any number of pieces, then `Ended`.  Or, at any time before the last of these, `Failed` or `Cancelled`: then
# nothing more is heard of the id.
Output = Piece | Prefilled | Ended | Failed | Cancelled
