"""Planted mistakes: each must be caught, by the claim and at the length that stand beside it.  They prove that the checks are awake."""

from __future__ import annotations

from specs.planted_budget import BUDGET
from specs.planted_checkpoints import CHECKPOINTS
from specs.planted_encoder import ENCODERS
from specs.planted_line import LINE
from specs.planted_owner import OWNER
from specs.planted_slots import SLOTS
from specs.planting import Mistake, at, edited, swapped

__all__ = ["PLANTED", "Mistake", "at", "edited", "swapped"]

PLANTED = {mistake.name: mistake for mistake in (*LINE, *BUDGET, *OWNER, *SLOTS, *CHECKPOINTS, *ENCODERS)}
