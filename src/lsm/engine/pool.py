"""What is under way: the slots, the jobs that have not ended, and what came out.  Decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from lsm.engine.batch import Share
from lsm.engine.family import Family
from lsm.engine.outputs import Output
from lsm.engine.request import Request
from lsm.engine.slot import Slot
from lsm.engine.tally import Tally


class Pool:
    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self.slots = slots
        self.families: dict[str, Family] = {}  # jobs of which some choice has not ended
        self.queue: deque[Family] = deque()  # of these, those without a slot
        self.order: list[Slot] = []  # busy slots, first come first
        self.outputs: list[Output] = []
        self.tally = Tally()
        self._uses = 0

    def add(self, family: Family) -> None:
        self.families[family.id] = family
        self.queue.append(family)

    def idle(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.request is None]

    def slot(self, request: Request) -> Slot | None:
        return None if request.slot_id is None else self.slots[request.slot_id]

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

    def drawing(self, share: Share) -> list[Request]:
        """Who draws a token from the last row of this part: its request, and after a prompt those who wait for it."""
        if not share.output:
            return []
        request = self.request(share)
        return [request, *self.waiting(request)]

    def waiting(self, lead: Request) -> list[Request]:
        """The other choices of this job whose slots wait for its prompt."""
        if lead.options.n == 1 or lead.index or lead.sampled is not None:
            return []
        return [request for request in self.families[lead.id].members[1:] if request.slot_id is not None]

    def occupy(self, slot: Slot, request: Request) -> None:
        request.slot_id = slot.id
        slot.request = request
        self.order.append(slot)

    def vacate(self, slot: Slot) -> None:
        slot.request, slot.previous = None, slot.request
        self.order.remove(slot)
        self._uses += 1
        slot.last_used = self._uses

    def ended(self, request: Request) -> None:
        """No more is done for this choice; with the last one the job is forgotten."""
        request.close_sampler()
        family = self.families[request.id]
        family.n_live -= 1
        if family in self.queue:
            self.queue.remove(family)
        if not family.n_live:
            del self.families[request.id]
            family.close()

    def close(self) -> None:
        for family in self.families.values():
            family.close()
        self.families.clear()
        self.queue.clear()
        for slot in self.slots:
            slot.close()
