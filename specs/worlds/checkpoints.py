"""One slot whose memory cannot go back: a hybrid, whose attention remembers everything and whose recurrent state only what came last.

The contents are followed, not counted: what each part of the memory, and each snapshot, is of.  One step is a phase of
`lsm.engine.rewinding`: a prompt comes and the memory is matched to it, or a batch of it is decoded, after a snapshot where one is due.
Which prompt comes, how it is cut beyond the cut before its last token, what is answered, and which copy fails is free; the device memory
may leave between any two steps, and come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.table import Machine, Refused, step

LETTERS = "ab"
END = 1  # the snapshot that the next prompt resumes from is so many tokens before the end of the prompt
UNKNOWN = "?"  # what a memory holds after a decode that failed, or a copy that could not be put back

Step = tuple[str, "Memory"]


@dataclass(frozen=True, slots=True)
class Scenario:
    length: int = 4  # of the longest prompt; an answer has one token, or none
    n_max: int = 2  # snapshots
    faults: bool = True  # copies and decodes fail
    stash: bool = False  # host memory has room for one prompt of a slot
    guesses: bool = False  # an answer's token has a guess behind it, made by a draft model with a memory of its own
    mistake: str = ""  # of the world, not of the table: see specs/planted_checkpoints.py


class Stored(NamedTuple):
    believed: str
    content: str  # what the copy of the memory is of
    kept: tuple[tuple[int, str], ...]


class Memory(NamedTuple):
    state: str = "following"  # of the machine
    believed: str = ""  # what the slot takes to be in the memory
    cells: str = ""  # what the layers that see everything hold
    recurrent: str = ""  # what the recurrent state is of
    kept: tuple[tuple[int, str], ...] = ()  # snapshots: the tokens they are said to have, and what they are of
    prompt: str = ""  # of the request under way; nothing: the slot is idle
    away: bool = False  # not in device memory
    stash: tuple[Stored, ...] = ()  # in host memory, at most one
    drafted: str = ""  # what the memory of the draft model is of
    whole: str = ""  # the last prompt, if it was decoded whole and its snapshot was not refused
    wrong: str = ""  # what must not happen


def initial(scenario: Scenario) -> Memory:
    return Memory()


def common(one: str, other: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))


class World:
    """The steps, for some table (a mutant, perhaps) and some scenario."""

    def __init__(self, scenario: Scenario, table: Machine = CHECKPOINT) -> None:
        self.scenario = scenario
        self.table = table
        self.step = step  # the coverage listens here
        self.prompts = ["".join(letters) for n in range(1, scenario.length + 1) for letters in product(LETTERS, repeat=n)]

    def successors(self, memory: Memory) -> list[Step]:
        if memory.wrong:
            return [("wrong", memory)]
        return list(self._steps(memory))

    def _steps(self, memory: Memory) -> Iterator[Step]:
        if memory.away:
            yield "back", memory._replace(away=False)
        else:
            yield "leave", memory._replace(away=True)
        if memory.prompt:
            yield "cancel", memory._replace(prompt="")
        elif memory.believed:
            yield "room", self._lost(memory)
        if memory.prompt and self.scenario.faults:
            yield "fault.all", self._lost(memory)._replace(prompt="")
        if not memory.away or self.scenario.mistake == "a step runs before the memory is back":
            yield from self._batches(memory) if memory.prompt else self._asked(memory)

    # ---- a prompt comes

    def _asked(self, memory: Memory) -> Iterator[Step]:
        for prompt in self.prompts:
            fine = list(self._answers(memory, prompt, False))
            yield from ((f"ask {prompt}", after) for after in fine)
            if self.scenario.faults:  # where nothing is copied, no copy can fail
                yield from ((f"fault.ask {prompt}", after) for after in self._answers(memory, prompt, True) if after not in fine)

    def _answers(self, memory: Memory, prompt: str, fault: bool) -> Iterator[Memory]:
        for exchanged in self._exchanged(memory, fault):
            n_common = common(exchanged.believed, prompt)
            matched = self._matched(exchanged, n_common, len(prompt), fault)
            yield self._judged(exchanged, matched, prompt, fault)

    def _exchanged(self, memory: Memory, fault: bool) -> Iterator[Memory]:
        """Before the slot takes a prompt, its content may be stored, and what is stored put back; `fault`: the latter cannot be."""
        yield memory
        if not self.scenario.stash or not memory.believed:
            return
        memory = self._looked_at(memory)
        cleared = self._lost(memory)
        copied = cleared if self.scenario.mistake == "the slot is cleared before its state is copied" else memory
        stored = (Stored(memory.believed, copied.recurrent, memory.kept),)
        yield memory._replace(stash=stored)
        for entry in memory.stash:
            if fault:
                rubbish = UNKNOWN if self.scenario.mistake == "an entry that cannot be put back leaves its rubbish" else ""
                yield cleared._replace(stash=stored, recurrent=rubbish)
            else:
                kept = memory.kept if self.scenario.mistake == "an entry comes back without its snapshots" else entry.kept
                yield cleared._replace(stash=stored, believed=entry.believed, cells=entry.content, recurrent=entry.content, kept=kept)

    def _matched(self, memory: Memory, n_common: int, n_prompt: int, fault: bool) -> Memory:
        """Brought to the common prefix, all but the last token of the prompt at most; `fault`: a snapshot cannot be put back."""
        n = min(n_common, n_prompt if self.scenario.mistake == "the whole prompt is taken from the memory" else n_prompt - 1)
        beyond = 99 if self.scenario.mistake == "a snapshot beyond the common prefix is put back" else n
        found = max((entry for entry in memory.kept if entry[0] <= beyond), default=None)
        event, facts = "match", {"in_memory": n in (0, len(memory.believed)), "found": found is not None}
        while event:
            effects, memory = self._fire(memory, event, facts)
            event = ""
            for effect in effects:
                if effect == "restore" and found is not None:
                    event, memory = self._restored(memory, found[1], fault)
                    n = n if self.scenario.mistake == "decoding goes on behind what the snapshot has" else found[0]
                elif effect == "trim":
                    memory = self._trimmed(memory, n)
                elif effect == "clear":
                    memory = memory._replace(believed="", cells="", recurrent="")
                elif effect == "forget_beyond":
                    last = -1 if self.scenario.mistake == "an ordinary next turn drops all snapshots" else n_common
                    memory = memory._replace(kept=tuple(entry for entry in memory.kept if entry[0] <= last))
                else:
                    memory = memory._replace(kept=())
        return memory

    def _restored(self, memory: Memory, content: str, fault: bool) -> tuple[str, Memory]:
        memory = self._looked_at(memory)
        return ("refused", memory._replace(recurrent=UNKNOWN)) if fault else ("restored", memory._replace(recurrent=content))

    def _trimmed(self, memory: Memory, n: int) -> Memory:
        """The recurrent state can only go as a whole; cells go one by one.  Where nothing is to go, nothing is done."""
        if n == len(memory.believed):
            return memory
        recurrent = memory.recurrent if n else ""
        return memory._replace(believed=memory.believed[:n], cells=memory.cells[:n], recurrent=recurrent)

    def _judged(self, before: Memory, memory: Memory, prompt: str, fault: bool) -> Memory:
        """A prompt that begins like the one before, up to the snapshot at its end, resumes there; no snapshot is dropped that is of it."""
        n_due = len(before.whole) - END
        could = 0 < n_due < len(prompt) and common(before.whole, prompt) >= n_due and not fault
        if could and len(memory.believed) < n_due and not memory.wrong:
            memory = memory._replace(wrong="a prompt is decoded again from too far back")
        own = [entry for entry in before.kept if entry[0] <= common(before.believed, prompt)]
        if not fault and not set(own) <= set(memory.kept) and not memory.wrong:
            memory = memory._replace(wrong="a snapshot is dropped that is of the prompt")
        return memory._replace(prompt=prompt, whole="")

    # ---- a batch of it

    def _batches(self, memory: Memory) -> Iterator[Step]:
        n, n_prompt = len(memory.believed), len(memory.prompt)
        cut = n_prompt - END if n < n_prompt - END else n_prompt
        is_due = n > 0 and n == n_prompt - END
        for fault in (False, True) if self.scenario.faults and is_due else (False,):
            before = self._saved(memory, fault) if is_due else memory
            for stop in range(n + 1, cut + 1):
                for after in self._decoded(before, stop):
                    yield f"{'fault.save' if fault else 'step'} to {stop}", after
        if self.scenario.faults:
            yield "fault.decode", self._lost(memory._replace(cells=UNKNOWN, recurrent=UNKNOWN))._replace(prompt="")

    def _saved(self, memory: Memory, fault: bool) -> Memory:
        _, memory = self._fire(self._looked_at(memory), "due", {})
        n = len(memory.believed)
        stay = [entry for entry in memory.kept if entry[0] != n]
        is_full = len(stay) >= self.scenario.n_max
        if is_full and self.scenario.mistake != "a full list takes no new one":
            stay.pop(0)
        _, memory = self._fire(memory._replace(kept=tuple(stay)), "refused" if fault else "saved", {})
        if fault:
            return memory._replace(whole=UNKNOWN)
        if self.scenario.mistake == "the snapshot before the end is left out" or len(stay) >= self.scenario.n_max:
            return memory
        late = memory.prompt[n:][:1] if self.scenario.mistake == "a snapshot is taken behind the batch" else ""
        return memory._replace(kept=tuple(sorted((*stay, (n, memory.recurrent + late)))))

    def _decoded(self, memory: Memory, stop: int) -> Iterator[Memory]:
        n = len(memory.believed)
        memory = self._looked_at(_with(memory, memory.prompt[n:stop]))
        if stop < len(memory.prompt):
            yield memory
            return
        whole = "" if memory.whole == UNKNOWN else memory.prompt
        done = memory._replace(prompt="", whole=whole)
        yield from (_with(done, token) for token in ("", *LETTERS))
        if self.scenario.guesses:
            for token, guess, fault in product(LETTERS, LETTERS, (False, True) if self.scenario.faults else (False,)):
                guessed = self._guessed(done, token, guess)
                yield guessed
                yield self._taken_back(guessed, done, token, fault)

    # ---- guesses

    def _guessed(self, memory: Memory, token: str, guess: str) -> Memory:
        """The draft model's memory is cut to what the text begins with, the rest is decoded; then both models decode the guess."""
        text = memory.believed + token
        n_kept = common(memory.drafted, text)
        if self.scenario.mistake == "the draft model goes on behind what the slot has forgotten":
            n_kept = min(len(memory.drafted), len(text))
        drafted = memory.drafted[:n_kept] + text[n_kept:]
        if drafted != text:
            memory = memory._replace(wrong="a guess is made from another text")
        return _with(memory._replace(drafted=drafted + guess), token + guess)

    def _taken_back(self, memory: Memory, before: Memory, token: str, fault: bool) -> Memory:
        """The guess was wrong: the memory goes back to the snapshot of before the batch, as a prompt would, and decodes the token again."""
        text = before.believed + token
        if self.scenario.mistake == "wrong guesses stay in the memory":
            return memory._replace(believed=text)
        marked = tuple(sorted({*memory.kept, (len(before.believed), before.recurrent)}))
        back = self._matched(memory._replace(kept=marked), len(text), len(text) + 1, fault)
        kept = tuple(entry for entry in back.kept if entry in memory.kept)
        lost = "" if self.scenario.mistake == "what left with a wrong guess is not decoded again" else text[len(back.believed) :]
        whole = "" if fault else back.whole  # its snapshots went, too
        return _with(back._replace(kept=kept, whole=whole), lost)._replace(believed=text)

    # ---- the rest

    def _lost(self, memory: Memory) -> Memory:
        """Only book-keeping, so this works while the memory is away, too."""
        effects, memory = self._fire(memory, "lost", {})
        kept = () if "forget_all" in effects else memory.kept
        return memory._replace(believed="", cells="", recurrent="", kept=kept, whole="")

    def _looked_at(self, memory: Memory) -> Memory:
        return memory._replace(wrong="the memory is looked at while it is away") if memory.away else memory

    def _fire(self, memory: Memory, event: str, facts: dict[str, bool]) -> tuple[tuple[str, ...], Memory]:
        try:
            state, effects = self.step(self.table, memory.state, event, facts)
        except Refused as refused:
            return (), memory._replace(wrong=str(refused))
        return effects, memory._replace(state=state)


def _with(memory: Memory, tokens: str) -> Memory:
    return memory._replace(
        believed=memory.believed + tokens, cells=memory.cells + tokens, recurrent=memory.recurrent + tokens if tokens else memory.recurrent
    )
