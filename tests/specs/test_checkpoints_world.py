"""The world of snapshots has every state of the real slot: random runs of the scheduler stay within it."""

from __future__ import annotations

import random
from functools import cache

import pytest

from lsm.engine import checkpoints as policy
from lsm.engine.checkpoints import Spacing
from lsm.errors import DecodeFailed
from specs.explore import reach
from specs.worlds import checkpoints
from specs.worlds.checkpoints import END, LETTERS, Memory, Scenario
from tests.engine.scripted import Bench, ScriptedDecoder

LETTER = {3: "a", 4: "b"}
TOKEN = {letter: token for token, letter in LETTER.items()}


@cache
def known() -> frozenset[Memory]:
    """Without what the world notes for its claims."""
    graph = reach(checkpoints.initial(Scenario()), checkpoints.World(Scenario()).successors, 10_000)
    return frozenset(memory._replace(whole="", wrong="") for memory in graph.states)


class Run:
    """A scheduler with one slot, over a memory that forgets nothing and cannot go back, disturbed at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        spacing = Spacing(n_max=Scenario().n_max, min_step=0, n_batch=4, n_ubatch=1)
        self.decoder = ScriptedDecoder(is_recurrent=True)
        self.bench = Bench(self.decoder, n_slots=1, n_batch=4, can_trim=False, spacing=spacing)
        self.count = 0

    def disturb(self) -> None:
        scheduler, roll = self.bench.scheduler, self.random.random()
        if not scheduler.has_work and roll < 0.8:
            self.count += 1
            length = self.random.randint(1, Scenario().length)
            prompt = [TOKEN[self.random.choice(LETTERS)] for _ in range(length)]
            answer = [TOKEN[self.random.choice(LETTERS)]] * 2
            self.bench.submit(str(self.count), prompt, answer, max_tokens=self.random.randint(1, 2))
        elif roll < 0.05:
            scheduler.cache.clear_idle()
        elif roll < 0.1:
            scheduler.cancel(str(self.count))
        elif roll < 0.15:
            scheduler.fail_all(DecodeFailed("planted"))
        else:
            self.decoder.spoiled_states = self.random.random() < 0.2
            self.decoder.no_room_for_states = self.random.random() < 0.2
            self.decoder.codes = [-2] if self.random.random() < 0.05 else []
            scheduler.step()

    def state(self) -> Memory:
        (slot,) = self.bench.scheduler.pool.slots
        believed, cells = text(slot.tokens.tolist()), text(self.decoder.cached(0))
        kept = tuple((entry.n_tokens, text(entry.state.view("int32")[4:].tolist())) for entry in slot.checkpoints)
        request = slot.request
        prompt = text(request.prompt.tolist()) if request is not None and request.sampled is None else ""
        return Memory(slot.way_back.state, believed, cells, cells, kept, prompt)


def text(tokens: list[int]) -> str:
    return "".join(LETTER[token] for token in tokens)


@pytest.mark.parametrize("seed", range(4))
def test_the_real_slot_is_always_in_a_state_of_the_world(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """S11: design 9: the spec is bound to the code."""
    monkeypatch.setattr(policy, "END_OFFSET", END)
    run = Run(seed)
    for _ in range(400):
        run.disturb()
        assert run.state() in known()


def test_a_state_that_the_world_does_not_have_is_noticed() -> None:
    """S11: the comparison can fail."""
    run = Run(0)
    run.bench.answer("1", [3, 4, 3], max_tokens=1)
    assert run.state() in known()
    run.bench.scheduler.pool.slots[0].keep(1)
    assert run.state() not in known()
