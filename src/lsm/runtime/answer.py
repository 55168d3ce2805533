"""The stream of one request's answer, between the owner that fills it and the door that reads it.

Text that nobody has read yet is one piece, however many tokens it has, so it is bounded by the context of the slot; a reader that
stops reading holds up nobody.
"""

from __future__ import annotations

from dataclasses import replace

import trio

from lsm.engine.slot_content import SlotDone
from lsm.errors import LsmError
from lsm.values import Embedding, Finish, Progress, Text

End = Finish | Embedding | SlotDone


class Answer:
    """An async iterator of `Text`, ..., `Finish`; with several choices their texts are mixed, and each has its `Finish`.

    `Progress` comes first, if it was asked for.  Or there is an `embedding`, or a `result`, where one was asked for.
    Raises the request's error after what came before it.
    """

    def __init__(self, request_id: str, n_choices: int = 1) -> None:
        self.request_id = request_id
        self._texts: dict[int, list[Text]] = {}  # of each choice
        self._progress: Progress | None = None
        self._ends: list[End] = []
        self._n_left = n_choices
        self._error: LsmError | None = None
        self._news = trio.Event()

    @property
    def ended(self) -> bool:
        return self._n_left == 0 or self._error is not None

    def add(self, text: Text) -> None:
        self._texts.setdefault(text.index, []).append(text)
        self._news.set()

    def tell(self, progress: Progress) -> None:
        self._progress = progress
        self._news.set()

    def end(self, end: End) -> None:
        """Of one choice, if there are several."""
        self._ends.append(end)
        self._n_left -= 1
        self._news.set()

    def fail(self, error: LsmError) -> None:
        self._error = error
        self._news.set()

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Text | Progress | Finish:
        await self._news.wait()
        event = self._next()
        if event is None:
            if self._error is None:
                raise StopAsyncIteration
            error, self._error, self._n_left = self._error, None, 0
            raise error
        if not (self.ended or self._texts or self._ends or self._progress):
            self._news = trio.Event()
        return event

    def _next(self) -> Text | Progress | Finish | None:
        if self._progress is not None:
            progress, self._progress = self._progress, None
            return progress
        if self._texts:
            pieces = self._texts.pop(next(iter(self._texts)))
            return pieces[0] if len(pieces) == 1 else _joined(pieces)
        end = self._ends.pop(0) if self._ends else None
        assert end is None or isinstance(end, Finish)
        return end

    async def embedding(self) -> Embedding:
        """Raises the request's error."""
        end = await self._only_end()
        assert isinstance(end, Embedding)
        return end

    async def result(self) -> SlotDone:
        """Of a job for a slot, whose answer has nothing but its end.  Raises its error."""
        end = await self._only_end()
        assert isinstance(end, SlotDone)
        return end

    async def _only_end(self) -> End:
        await self._news.wait()
        if self._error is not None:
            raise self._error
        return self._ends[0]


class Waker:
    """One who waits until a model is awake."""

    def __init__(self) -> None:
        self._news = trio.Event()
        self._error: LsmError | None = None

    def end(self, error: LsmError | None = None) -> None:
        self._error = error
        self._news.set()

    async def wait(self) -> None:
        await self._news.wait()
        if self._error is not None:
            raise self._error


def _joined(pieces: list[Text]) -> Text:
    text = "".join(piece.text for piece in pieces)
    tokens = tuple(token for piece in pieces for token in piece.tokens)
    probs = tuple(probs for piece in pieces for probs in piece.probs)
    return replace(pieces[-1], text=text, tokens=tokens, probs=probs)
