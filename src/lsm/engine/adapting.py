"""LoRA adapters: which act in the next batch, and for whom.

A request keeps the scales that it began with.  A batch has one set of scales, so requests with others wait for a batch of theirs; sets
take turns, whichever has waited longest first.
"""

from __future__ import annotations

from collections.abc import Iterable

from lsm.engine.ports import Decoder
from lsm.engine.prompt_cache import Scales
from lsm.values import Options


class Adapting:
    def __init__(self, decoder: Decoder) -> None:
        self.default: Scales = ()  # of requests that ask for none, one for each adapter
        self._decoder = decoder
        self._applied: Scales = ()
        self._turns: dict[Scales, int] = {}  # sets of requests under way: the batch that was theirs
        self._n_batches = 0

    def wanted(self, options: Options) -> Scales:
        """What acts for a request that begins now: those that it names, and no others."""
        if options.lora is None:
            return self.default
        asked = dict(options.lora)
        return tuple(asked.get(id, 0.0) for id in range(len(self.default)))

    def choose(self, sets: Iterable[Scales]) -> Scales | None:
        """Whose turn it is among these; None: there are none."""
        waiting = dict.fromkeys(sets)
        if len(waiting) < 2:
            self._turns.clear()
            return next(iter(waiting), None)
        chosen = min(waiting, key=lambda scales: self._turns.get(scales, -1))
        self._n_batches += 1
        self._turns = {scales: turn for scales, turn in self._turns.items() if scales in waiting} | {chosen: self._n_batches}
        return chosen

    def use(self, scales: Scales) -> None:
        """In what is decoded from now on."""
        if scales != self._applied:
            self._decoder.set_adapters(scales)
            self._applied = scales
