"""What is under way: the slots, the requests that have not ended, and what came out.  Decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lsm.engine.batch import Share
from lsm.engine.outputs import Output
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.engine.tally import Tally


class Pool:
    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self.slots = slots
        self.requests: dict[str, Request] = {}  # those that have not ended
        self.queue: deque[Request] = deque()  # of these, those without a slot
        self.order: list[Slot] = []  # busy slots, first come first
        self.outputs: list[Output] = []
        self.tally = Tally()
        self._uses = 0

    def idle(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.request is None]

    def request(self, share: Share) -> Request:
        request = self.slots[share.slot].request
        assert request is not None, f"slot {share.slot} has rows in the batch, but no request"
        return request

    def announce(self, shares: Iterable[Share]) -> None:
        """Tell the slots what of their prompts is in the next batch."""
        for share in shares:
            slot, request = self.slots[share.slot], self.request(share)
            if slot.machine.state in ("started", "processing_prompt"):
                slot.machine.fire("batch", whole=slot.n + share.stop - share.start == len(request.prompt))

    def occupy(self, slot: Slot, request: Request) -> None:
        request.slot_id = slot.id
        slot.request = request
        self.order.append(slot)

    def vacate(self, slot: Slot) -> None:
        slot.request, slot.previous = None, slot.request
        self.order.remove(slot)
        self._uses += 1
        slot.last_used = self._uses

    def forget(self, request: Request, output: Output) -> None:
        """The request has ended; `output` is the last that is heard of it."""
        self.outputs.append(output)
        del self.requests[request.id]
        if request in self.queue:
            self.queue.remove(request)
        request.close()

    def close(self) -> None:
        for request in self.requests.values():
            request.close()
        self.requests.clear()
        self.queue.clear()
        for slot in self.slots:
            slot.close()
