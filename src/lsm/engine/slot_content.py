"""What goes into a slot and comes out of it as a whole, and the jobs that ask for it."""

from __future__ import annotations

from dataclasses import dataclass

from lsm.engine.checkpoints import Checkpoints, State
from lsm.engine.prompt_cache import Held


@dataclass(frozen=True, slots=True, eq=False)
class SlotContent:
    """`state`: (n,) uint8, of the whole sequence; its first STATE_HEADER_BYTES count only in the process that made it."""

    held: Held
    state: State
    checkpoints: Checkpoints = ()


@dataclass(frozen=True, slots=True)
class SaveSlot:
    """`id` is the caller's, unique among requests and these."""

    id: str
    slot: int


@dataclass(frozen=True, slots=True, eq=False)
class LoadSlot:
    """The state's header is overwritten.  `is_sound`: its bytes are known to be those that a server wrote."""

    id: str
    slot: int
    content: SlotContent
    is_sound: bool = True


@dataclass(frozen=True, slots=True)
class EraseSlot:
    id: str
    slot: int


SlotJob = SaveSlot | LoadSlot | EraseSlot


@dataclass(frozen=True, slots=True, eq=False)
class SlotDone:
    """n_tokens: saved, loaded or erased.  content: of a SaveSlot.

    n_resumable: after a LoadSlot, how many tokens need not be decoded again if the same prompt comes next.
    """

    n_tokens: int
    content: SlotContent | None = None
    n_resumable: int = 0
