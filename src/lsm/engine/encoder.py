"""The encoder's comings and goings: performs what the table `lsm.machines.encoder` asks for, all of it on the engine thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from lsm.engine.ports import Media, OwnedInstance
from lsm.engine.prefix import Tokens
from lsm.engine.prompt import Span, placeholders
from lsm.engine.slot_media import Spans
from lsm.errors import DeviceMemoryError, LsmError, ServerError, SourceChanged
from lsm.native.media import Chunk
from lsm.native.memory import Bytes

log = logging.getLogger("lsm.engine")

WEIGHTS, ENCODER = "weights", "encoder"  # classes of device memory

Floats = NDArray[np.float32]


class Memory(Protocol):
    """Verbs of `native.memory.DeviceMemory`.  Those that move raise `LsmError`, and change nothing then."""

    def release(self, memory_class: str) -> None: ...

    def restore(self, memory_class: str) -> None: ...

    def bytes(self, memory_class: str) -> Bytes: ...


class Room(Protocol):
    """Of the device, for an encoder beside what its model has there."""

    def take(self, size_bytes: int) -> bool:
        """Whether there is so much; then it is the encoder's until it is given back."""
        ...

    def give_back(self) -> None: ...


class Boundless:
    """A device that nobody counts: that there is no room is seen when an allocation fails."""

    def take(self, size_bytes: int) -> bool:
        return True

    def give_back(self) -> None:
        pass


class Opened(Protocol):
    """What is needed of `native.media.Projector`."""

    def encode(self, first: Chunk, more: Sequence[Chunk] = ()) -> list[Floats | None]: ...


@dataclass(slots=True, eq=False)
class MediaChunk:
    """`ports.Media`: a chunk of a tokenized prompt, and what the encoder made of it."""

    span: Span
    chunk: Chunk
    embeddings: Floats | None = None


def lay_out(parts: Sequence[Tokens | Chunk]) -> tuple[Tokens, tuple[MediaChunk, ...]]:
    """The prompt, shape (n,), int32, with placeholders for media, and the media in order."""
    rows: list[Tokens] = [np.zeros(0, np.int32)]
    media: list[MediaChunk] = []
    spans = Spans()
    n = 0
    for part in parts:
        if isinstance(part, Chunk):
            media.append(MediaChunk(spans.add(n, part), part))
            rows.append(placeholders(media[-1].span.id, part.n_tokens))
        else:
            rows.append(part)
        n += len(rows[-1])
    return np.concatenate(rows), tuple(media)


class EncoderWindow:
    """`ports.Encoder`, in the `room` that the device has beside what is there."""

    def __init__(self, machine: OwnedInstance, memory: Memory, room: Room, on_demand: bool) -> None:
        self._machine = machine
        self._memory = memory
        self._size_bytes = 0
        self._projector: Opened | None = None
        self._work: Callable[[], None] = lambda: None  # what `run` does
        self._open: Callable[[], Opened] | None = None
        self._error: LsmError | None = None
        self._perform: dict[str, Callable[[], str]] = {
            "open": self._do_open,
            "fail_open": lambda: "",  # the caller is told the error
            "release_weights": lambda: self._move(self._memory.release, WEIGHTS, "weights_left", "leave_failed"),
            "restore_weights": lambda: self._move(self._memory.restore, WEIGHTS, "weights_entered", "enter_failed"),
            "release_encoder": lambda: self._move(self._memory.release, ENCODER, "left", "leave_failed"),
            "restore_encoder": lambda: self._move(self._memory.restore, ENCODER, "entered", "enter_failed"),
            "run": self._do_run,
            "fail_media": self._do_fail_media,
            "report_lost": self._do_report_lost,
            "report_changed": self._do_report_lost,
        }
        self._sample: dict[str, Callable[[], bool]] = {
            "fits": lambda: self._take_room(self._size_bytes),
            "fits_alone": lambda: self._has_room or self._take_room(self._more_than_the_weights()),
            "for_room": lambda: isinstance(self._error, DeviceMemoryError),
            "changed": lambda: isinstance(self._error, SourceChanged),
            "on_demand": lambda: on_demand,
        }
        self._room = room
        self._has_room = False
        self._media_error: LsmError | None = None
        self.lost_for: LsmError | None = None  # why the weights are not there; `SourceChanged`: why the model must be freed

    # ---- asked by the engine --------------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        return self._machine.state == "lost"

    def arrive(self, open_projector: Callable[[], Opened], size_bytes: int) -> None:
        """Load the projector, of so many bytes on the device, while the weights are there.  Raises `LsmError`."""
        self._open, self._size_bytes, self._error = open_projector, size_bytes, None
        self._drive("arrive")
        self._give_back_room()
        if self._machine.state not in ("host", "resident"):
            raise self._error or DeviceMemoryError(
                f"the device has no room for the encoder ({size_bytes} bytes); with --mmproj-ondemand it takes turns with the weights"
            )

    def encode(self, media: Media, more: Sequence[Media]) -> None:
        """One window: `media`, and of `more` what goes along with it.  Raises `ServerError`: `media` was not encoded."""
        batch = [cast(MediaChunk, one) for one in (media, *more)]
        self._work = lambda: self._encode(batch)
        self._media_error = self._error = None
        self._drive("encode")
        self._give_back_room()
        if self._media_error is not None:
            raise self._media_error

    def woken(self) -> None:
        """All that was in device memory before is there again."""
        self.lost_for = None
        self._drive("woken")

    def freed(self) -> None:
        self._drive("freed")
        self._machine.close()

    # ---- the table ------------------------------------------------------------------------------------------------------

    def _drive(self, event: str) -> None:
        """Deliver the event, and whatever comes of its effects, until nothing more does."""
        while event:
            effects = self._machine.fire(event, **{name: self._sample[name]() for name in self._machine.asks(event)})
            outcomes = [outcome for effect in effects if (outcome := self._perform[effect]())]
            event = outcomes[0] if outcomes else ""

    def _take_room(self, size_bytes: int) -> bool:
        self._has_room = self._room.take(size_bytes)
        return self._has_room

    def _more_than_the_weights(self) -> int:
        """What the encoder needs beyond the room that the weights leave to it."""
        return max(0, self._size_bytes - self._memory.bytes(WEIGHTS).device)

    def _give_back_room(self) -> None:
        """The window has closed: the encoder has left, or never came.  One that stays keeps its room."""
        if self._has_room and self._machine.state in ("host", "absent"):
            self._has_room = False
            self._room.give_back()

    def _move(self, verb: Callable[[str], None], memory_class: str, done: str, failed: str) -> str:
        return self._attempt(lambda: verb(memory_class), done, failed)

    def _attempt(self, act: Callable[[], None], done: str, failed: str) -> str:
        try:
            act()
        except LsmError as error:
            self._error = error
            log.warning("encoder: %s: %s", failed, error.message)
            return failed
        return done

    def _do_open(self) -> str:
        def act() -> None:
            assert self._open is not None
            self._projector = self._open()

        return self._attempt(act, "opened", "open_failed")

    def _do_run(self) -> str:
        return self._attempt(self._work, "encoded", "encode_failed")

    def _encode(self, batch: Sequence[MediaChunk]) -> None:
        assert self._projector is not None
        results = self._projector.encode(batch[0].chunk, [one.chunk for one in batch[1:]])
        for one, embeddings in zip(batch, results, strict=True):
            one.embeddings = embeddings

    def _do_fail_media(self) -> str:
        reason = self._error.message if self._error else f"the device has no room for the encoder ({self._size_bytes} bytes)"
        self._media_error = ServerError(f"the image or sound could not be encoded: {reason}")
        return ""

    def _do_report_lost(self) -> str:
        self.lost_for = self._error
        return ""
