"""Who needs a model awake: requests, loads, explicit wakes.  A count, never a flag, so that no wake-up can be lost (S2)."""

from __future__ import annotations

from collections.abc import Callable

from lsm.engine.outputs import Cancelled, Ended, Failed, Output, Piece, Prefilled
from lsm.errors import LsmError, Unavailable
from lsm.runtime.answer import Answer, Waker

REQUESTS_MAX = 1024  # accepted and not ended, for one model


class Demand:
    """`post(machine, event)`: `demand` whenever the count grows, `relaxed` when nobody is left, `look` when no request is."""

    def __init__(self, post: Callable[[str, str], None]) -> None:
        self._post = post
        self.count = 0
        self.answers: dict[str, Answer] = {}
        self.wakers: set[Waker] = set()

    def add(self) -> None:
        self.count += 1
        self._post("sleep", "demand")

    def drop(self) -> None:
        self.count -= 1
        assert self.count >= 0
        if not self.count:
            self._post("sleep", "relaxed")
        if not self.answers:
            self._post("token", "look")  # `due` may have become true

    def open_answer(self, request_id: str, n_choices: int = 1) -> Answer:
        """Raises `Unavailable` when too many wait already."""
        if len(self.answers) >= REQUESTS_MAX:
            raise Unavailable(f"{REQUESTS_MAX} requests are waiting for this model already; try again later")
        answer = self.answers[request_id] = Answer(request_id, n_choices)
        self.add()
        return answer

    def hand_out(self, outputs: list[Output]) -> None:
        """What the engine made, to those who asked for it."""
        for output in outputs:
            answer = self.answers[output.id]
            match output:
                case Piece():
                    answer.add(output.text)
                case Prefilled():
                    answer.tell(output.progress)
                case Ended():
                    answer.end(output.finish)
                case Failed():
                    answer.fail(output.error)
                case Cancelled():
                    answer.fail(Unavailable("this request was cancelled"))
            if not answer.ended:
                continue
            del self.answers[output.id]
            self.drop()

    async def wait_until_awake(self, is_awake: Callable[[], bool]) -> None:
        """Be one who needs the model until it is awake.  Raises what `end_wakers` was given."""
        waker = Waker()
        self.wakers.add(waker)
        self.add()
        try:
            if not is_awake():
                await waker.wait()
        finally:
            self.wakers.discard(waker)
            self.drop()

    def end_wakers(self, error: LsmError | None = None) -> None:
        for waker in self.wakers:
            waker.end(error)
