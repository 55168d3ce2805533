"""Slots and requests of one engine, as `lsm.engine.scheduler` couples them, small enough to visit every state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

NOBODY = -1
UNKNOWN = -9  # rows of a sequence after a decode that failed
NEVER = ""  # the state of a request that has not come yet
TOKENS = 2  # the longest answer
ROWS = 2  # of one batch

# Kinds of requests: any slot; slot 0 only; no answer, only the prompt in the cache; the first choice of a job; another choice of that
# job, which is the request before this one.
ANY, PINNED, FILL, LEAD, OTHER = "any", "pinned", "fill", "lead", "other"


class Slot(NamedTuple):
    state: str = "idle"
    request: int = NOBODY
    believed: int = 0  # rows that the scheduler takes to be in the cache
    cached: int = 0  # rows that are
    shared: bool = False  # the other slot has some of its rows in the same cells


class Request(NamedTuple):
    state: str = NEVER
    slot: int = NOBODY
    tokens: int = 0  # sampled so far
    told: int = 0  # ends that were reported
    of: int = NOBODY  # the first choice of its job, if this is another


class Engine(NamedTuple):
    slots: tuple[Slot, ...]
    requests: tuple[Request, ...]
    queue: tuple[int, ...] = ()  # requests without a slot, first come first
    order: tuple[int, ...] = ()  # busy slots, first come first
    late: tuple[int, ...] = ()  # accepted, but not in the queue yet; only after a planted mistake
    rows: int = ROWS  # that are tried at once; smaller only after a planted mistake
    wrong: str = ""  # what must not happen: an event that some table refuses, a cancel without effect


@dataclass(frozen=True, slots=True)
class Scenario:
    slots: int = 2
    kinds: tuple[str, ...] = (ANY, PINNED, FILL)  # one for each request
    prompt: int = 2  # rows of each: two prompts do not fit into one batch, nor one beside a token
    context: int = 9  # rows of a slot
    shifts: bool = False  # a full slot drops its first rows, where it may
    faults: bool = True  # decodes fail, memory is short, everything is failed at once
    mistake: str = ""  # of the world, not of a table: see specs/planted_slots.py


CHOICES = Scenario(kinds=(LEAD, OTHER, ANY), prompt=3)  # the prompt needs two batches, so the other choice waits
SHIFT = replace(CHOICES, context=4, shifts=True)
