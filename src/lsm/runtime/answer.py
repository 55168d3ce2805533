"""The stream of one request's answer, between the owner that fills it and the door that reads it.

Text that nobody has read yet is one piece, however many tokens it has, so it is bounded by the context of the slot; a reader that
stops reading holds up nobody.
"""

from __future__ import annotations

import trio

from lsm.engine.slot_content import SlotDone
from lsm.errors import LsmError
from lsm.values import Embedding, Finish, Text

End = Finish | Embedding | SlotDone


class Answer:
    """An async iterator of `Text`, ..., `Finish`; or `embedding`, where one was asked for.

    Raises the request's error after the text that came before it.
    """

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._text: list[Text] = []
        self._end: End | LsmError | None = None
        self._news = trio.Event()

    @property
    def ended(self) -> bool:
        return self._end is not None

    def add(self, text: Text) -> None:
        self._text.append(text)
        self._news.set()

    def end(self, end: End | LsmError) -> None:
        self._end = end
        self._news.set()

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> Text | Finish:
        await self._news.wait()
        if self._text:
            pieces, self._text = self._text, []
            if self._end is None:
                self._news = trio.Event()
            return pieces[0] if len(pieces) == 1 else _joined(pieces)
        end, self._end = self._end, _OVER
        if end is _OVER:
            raise StopAsyncIteration
        if isinstance(end, Finish):
            return end
        assert isinstance(end, LsmError)
        raise end

    async def embedding(self) -> Embedding:
        """Raises the request's error."""
        await self._news.wait()
        end, self._end = self._end, _OVER
        if isinstance(end, Embedding):
            return end
        assert isinstance(end, LsmError)
        raise end

    async def result(self) -> SlotDone:
        """Of a job for a slot, whose answer has nothing but its end.  Raises its error."""
        await self._news.wait()
        if isinstance(self._end, LsmError):
            raise self._end
        assert isinstance(self._end, SlotDone)
        return self._end


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


_OVER = LsmError("this answer has been read to its end")


def _joined(pieces: list[Text]) -> Text:
    return Text(
        "".join(piece.text for piece in pieces),
        tuple(token for piece in pieces for token in piece.tokens),
        tuple(probs for piece in pieces for probs in piece.probs),
    )
