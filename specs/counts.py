"""The scenarios of the worlds, with the states and transitions that the explorer and SPIN must both count.

Where a world has no twin for SPIN, the explorer's numbers stand here all the same: a table or a world that changes is seen.
"""

from __future__ import annotations

from dataclasses import replace

from specs.worlds import checkpoints, encoder, slots_state
from specs.worlds.budget_state import Scenario as BudgetScenario
from specs.worlds.owner_state import Scenario

Counted = tuple[int, int]  # states, transitions; steps that change nothing are counted, too

# The line with N processes.
LINE: dict[int, Counted] = {2: (5_668, 29_556), 3: (271_756, 1_988_098), 4: (13_344_190, 125_984_758)}

# One slot and its snapshots; and with shorter prompts, one of which may be in host memory (without a twin).
SNAPSHOTS: Counted = (1_814, 25_952)
STASH = checkpoints.Scenario(length=2, stash=True)
STORED: Counted = (3_422, 32_820)
GUESSES = checkpoints.Scenario(length=2, guesses=True)  # likewise, with guesses behind the answer's token
GUESSED: Counted = (3_046, 24_328)

# An encoder and two requests: scenario, SPIN's defines, counts.
ENCODERS: dict[str, tuple[encoder.Scenario, tuple[str, ...], Counted]] = {
    "takes turns with the weights": (encoder.Scenario(), (), (577, 3_586)),
    "fits beside the weights": (encoder.Scenario(budget=8), ("-DBUDGET=8",), (730, 4_734)),
    "never fits": (encoder.Scenario(encoder_size=4), ("-DENC=4",), (172, 940)),
    "stays": (encoder.Scenario(on_demand=False, budget=8), ("-DBUDGET=8", "-DSTAYS"), (156, 985)),
}

# Two slots: scenario, SPIN's defines, counts.
SLOTS: dict[str, tuple[slots_state.Scenario, tuple[str, ...], Counted]] = {
    "three requests": (slots_state.Scenario(), (), (6_752, 110_951)),
    "two choices": (slots_state.CHOICES, ("-DFAMILY", "-DPROMPT=3"), (2_688, 37_769)),
    "a shift": (slots_state.SHIFT, ("-DFAMILY", "-DPROMPT=3", "-DCONTEXT=4"), (906, 12_848)),
}

# Processes under a budget.
ALL_FIT = BudgetScenario(n=2, budget=4, leaves=2)
ONE_FITS = BudgetScenario(n=2, budget=3, leaves=2)
THREE_FIT = BudgetScenario(n=3, budget=6, leaves=2, escapes=False, serves=False)
BUDGETS: dict[str, tuple[BudgetScenario, Counted]] = {
    "2 processes, both fit": (ALL_FIT, (2_376, 11_840)),
    "2 processes, one fits": (ONE_FITS, (2_342, 10_916)),
    "2 processes, one fits beside the other's KV cache": (BudgetScenario(n=2, budget=3, leaves=1, stays=1), (7_807, 34_694)),
    "2 processes, one fits alone": (BudgetScenario(n=2, budget=2, leaves=1, stays=1), (4_128, 18_394)),
    "3 processes, all fit": (THREE_FIT, (14_049, 63_372)),
    "3 processes, two fit": (replace(THREE_FIT, budget=4), (71_348, 375_615)),
    "3 processes, one fits": (replace(THREE_FIT, budget=2), (32_315, 170_361)),
}

# The owner of one model: requirements, scenario, counts.
REQUESTS = Scenario(clients=2, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False)
LIFE = Scenario(clients=1, inbox_limit=2, weights_get_lost=True)
UNDER_A_BUDGET = replace(REQUESTS, clients=1, evict_kv=False, budget=True)
OWNERS: dict[str, tuple[str, Scenario, Counted]] = {
    "2 clients": ("S2 S6 S10", REQUESTS, (11_224, 33_865)),
    "2 clients, idle sleep off": ("S2 S8", replace(REQUESTS, idle_sleep=False), (4_341, 12_909)),
    "3 clients": ("S2 S10", replace(REQUESTS, clients=3), (46_355, 172_170)),
    "2 clients, wake and sleep calls": ("S2 S10", Scenario(clients=2, inbox_limit=2, load_calls=False), (36_876, 114_210)),
    "1 client, load, unload, wake and sleep calls": ("S2 S7", LIFE, (83_866, 222_273)),
    "2 clients, all calls, KV cache stays": ("S2 S7 S9", Scenario(clients=2, inbox_limit=1, evict_kv=False), (24_194, 72_974)),
    "1 client, under a budget": ("S2 S6 S10", UNDER_A_BUDGET, (12_032, 31_573)),
    "1 client, under a budget, load and sleep calls": (
        "S2 S7", Scenario(clients=1, inbox_limit=1, evict_kv=False, wake_calls=False, budget=True), (11_640, 29_766),
    ),
}  # fmt: skip

# What SPIN shows of them under weak fairness: properties of worlds/owner.pml.
WAITS = ("client_waits", "load_waits", "load_is_under_way", "falling_asleep")
PASSING: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "2 clients": (REQUESTS, WAITS),
    "2 clients, all calls, KV cache stays": (OWNERS["2 clients, all calls, KV cache stays"][1], (*WAITS, "unload")),
    "1 client, under a budget": (UNDER_A_BUDGET, (*WAITS, "asked_for_everything")),
}
