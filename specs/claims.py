"""Every claim about the machines, and the check that stands for it.  `python -m specs` and tests/specs run the same list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lsm.machines import MACHINES
from lsm.machines.table import lint
from specs import spin
from specs.coverage import never_taken
from specs.explore import Predicate, Report, explore
from specs.fairness import Group, fair_lasso
from specs.planted import PLANTED, Mistake
from specs.simulation.run import BUDGET_SEEDS, examine
from specs.symmetry import count_orbits
from specs.worlds import (
    budget,
    budget_claims,
    checkpoints,
    checkpoints_claims,
    encoder,
    encoder_claims,
    owner,
    owner_claims,
    slots,
    slots_claims,
    slots_state,
    token,
    token_claims,
)
from specs.worlds.budget_state import Scenario as BudgetScenario
from specs.worlds.owner_state import Owner, Scenario
from specs.worlds.token_symmetry import canonical

# States and transitions of the line with N processes: the explorer and SPIN must both count so many.
LINE = {2: (5_668, 29_556), 3: (271_756, 1_988_098), 4: (13_344_190, 125_984_758)}

CHECKPOINT_STATES = 1_814  # of one slot and its snapshots; both must count so many
GUESSED_STATES = 3_046  # the same, shorter prompts, and guesses behind the answer's token
STORED_STATES = 3_422  # the same, shorter prompts, and one of them in host memory
# Of an encoder and two requests, by scenario: the name, SPIN's defines, and the states that both must count.
ENCODERS = {
    encoder.Scenario(): ("takes turns with the weights", (), 577),
    encoder.Scenario(budget=8): ("fits beside the weights", ("-DBUDGET=8",), 730),
    encoder.Scenario(encoder_size=4): ("never fits", ("-DENC=4",), 172),
    encoder.Scenario(on_demand=False, budget=8): ("stays", ("-DBUDGET=8", "-DSTAYS"), 156),
}
# Of two slots and three requests; both must count so many.
SLOT_STATES = {"three requests": 6_752, "two choices": 2_688, "a shift": 906}
SLOT_SCENARIOS = {
    "three requests": slots_state.Scenario(),
    "two choices": slots_state.CHOICES,
    "a shift": slots_state.SHIFT,
}
SLOT_DEFINES = {"three requests": (), "two choices": ("-DFAMILY", "-DPROMPT=3"), "a shift": ("-DFAMILY", "-DPROMPT=3", "-DCONTEXT=4")}


# Of processes under a budget: scenario, and how many states the explorer and SPIN must both count.
ALL_FIT = BudgetScenario(n=2, budget=4, leaves=2)
THREE_FIT = BudgetScenario(n=3, budget=6, leaves=2, escapes=False, serves=False)
BUDGETS = {
    "2 processes, both fit": (ALL_FIT, 2_376),
    "2 processes, one fits": (BudgetScenario(n=2, budget=3, leaves=2), 2_342),
    "2 processes, one fits beside the other's KV cache": (BudgetScenario(n=2, budget=3, leaves=1, stays=1), 7_807),
    "2 processes, one fits alone": (BudgetScenario(n=2, budget=2, leaves=1, stays=1), 4_128),
    "3 processes, all fit": (THREE_FIT, 14_049),
    "3 processes, two fit": (replace(THREE_FIT, budget=4), 71_348),
    "3 processes, one fits": (replace(THREE_FIT, budget=2), 32_315),
}


class Broken(Exception):
    """The claim does not hold; the message is the counterexample."""


@dataclass(frozen=True, slots=True)
class Claim:
    name: str
    about: str  # requirements
    check: Callable[[], str]  # returns what was seen, or raises Broken
    slow: bool = False  # takes longer than a second
    spin: bool = False  # needs SPIN
    huge: bool = False  # only on demand: minutes, and gigabytes


def tables_are_sound() -> str:
    mistakes = [f"{machine.name}: {mistake}" for machine in MACHINES.values() for mistake in lint(machine)]
    if mistakes:
        raise Broken("; ".join(mistakes))
    return f"{len(MACHINES)} tables"


def line_is_explored(n: int) -> str:
    """All invariants hold; from every state process 0 can become awake."""
    report = explore(token.initial(n), token.World().successors, token_claims.INVARIANTS, token_claims.GOALS)
    return _seen(report, *LINE[n])


def line_is_counted(n: int) -> str:
    """All invariants hold; one state of each kind was visited, and each counted as often as names can be exchanged in it."""
    count = count_orbits(token.initial(n), token.World().successors, canonical, token_claims.INVARIANTS)
    if (count.states, count.transitions) != LINE[n]:
        raise Broken(f"{count}, not {LINE[n]}")
    return f"{count.states} states, {count.transitions} transitions; {count.orbits} visited"


def spin_counts(n: int) -> str:
    """No assertion fails, and SPIN counts what the explorer counts."""
    verdict = spin.count_states(n, table_log2=22 if n < 4 else 25)
    if verdict != spin.Verdict(*LINE[n], 0):
        raise Broken(f"SPIN found {verdict}, not {LINE[n]} states and transitions and no error")
    return f"{verdict.states} states, {verdict.transitions} transitions"


def spin_counts_slots(name: str) -> str:
    verdict = spin.count_slots(SLOT_DEFINES[name])
    if (verdict.states, verdict.errors) != (SLOT_STATES[name], 0):
        raise Broken(f"SPIN found {verdict}, not {SLOT_STATES[name]} states and no error")
    return f"{verdict.states} states"


def ticket_is_served(n: int, defines: Sequence[str] = (), errors: int = 0) -> str:
    verdict = spin.check_served(n, defines)
    if verdict.errors != errors:
        raise Broken(f"{verdict}; {errors} errors were expected")
    return f"{verdict.states} states" if not errors else "fails, as it must"


def budget_is_explored(scenario: BudgetScenario, states: int) -> str:
    """All invariants hold; from every state process 0 can become awake, and on every weakly fair run whoever waits does."""
    holds = budget_claims.invariants(scenario)
    if scenario in (ALL_FIT, THREE_FIT):
        holds["nobody is asked to leave"] = budget_claims.all_fit
    report = explore(budget.initial(scenario), budget.World(scenario).successors, holds, budget_claims.GOALS)
    seen = _seen(report, states)
    _all_pass(report, budget_claims.PASSING, budget_claims.group)
    return seen


def spin_counts_budget(scenario: BudgetScenario, states: int) -> str:
    verdict = spin.count_budget(scenario)
    if (verdict.states, verdict.errors) != (states, 0):
        raise Broken(f"SPIN found {verdict}, not {states} states and no error")
    return f"{verdict.states} states"


def room_is_found(defines: Sequence[str] = (), errors: int = 0) -> str:
    """Under a budget that holds one of two."""
    verdict = spin.check_room(BudgetScenario(n=2, budget=3, leaves=2), defines)
    if verdict.errors != errors:
        raise Broken(f"{verdict}; {errors} errors were expected")
    return f"{verdict.states} states" if not errors else "fails, as it must"


def owner_is_explored(scenario: Scenario, states: int) -> str:
    """All invariants hold, all goals stay in reach, and on every weakly fair run whatever waits or passes comes to an end."""
    world = owner.World(scenario)
    invariants = owner_claims.BUDGET_INVARIANTS if scenario.budget else owner_claims.INVARIANTS
    report = explore(owner.initial(scenario), world.successors, invariants, owner_claims.GOALS)
    seen = _seen(report, states)
    _all_pass(report, owner_claims.BUDGET_PASSING if scenario.budget else owner_claims.PASSING, owner_claims.group)
    return seen


def slots_are_explored(name: str) -> str:
    """All invariants hold, every request can be done, and on every weakly fair run each ends."""
    scenario = SLOT_SCENARIOS[name]
    report = explore(slots.initial(scenario), slots.World(scenario).successors, slots_claims.INVARIANTS, slots_claims.GOALS)
    seen = _seen(report, SLOT_STATES[name])
    _all_pass(report, slots_claims.PASSING, slots_claims.group)
    return seen


def checkpoints_are_explored(scenario: checkpoints.Scenario, states: int) -> str:
    """All invariants hold, the slot can become idle and a prompt be done, and on every weakly fair run each prompt ends."""
    world = checkpoints.World(scenario)
    report = explore(checkpoints.initial(scenario), world.successors, checkpoints_claims.INVARIANTS, checkpoints_claims.GOALS)
    seen = _seen(report, states)
    _all_pass(report, checkpoints_claims.PASSING, checkpoints_claims.group)
    return seen


def encoder_is_explored(scenario: encoder.Scenario, states: int) -> str:
    """All invariants hold, all goals stay in reach, and on every weakly fair run each request, window and leave ends."""
    world = encoder.World(scenario)
    report = explore(encoder.initial(scenario), world.successors, encoder_claims.invariants(scenario), encoder_claims.goals(scenario))
    seen = _seen(report, states)
    _all_pass(report, encoder_claims.PASSING, encoder_claims.group)
    return seen


def spin_counts_encoder(defines: Sequence[str], states: int) -> str:
    verdict = spin.count_encoder(defines)
    if (verdict.states, verdict.errors) != (states, 0):
        raise Broken(f"SPIN found {verdict}, not {states} states and no error")
    return f"{verdict.states} states"


def spin_counts_checkpoints() -> str:
    verdict = spin.count_checkpoints()
    if (verdict.states, verdict.errors) != (CHECKPOINT_STATES, 0):
        raise Broken(f"SPIN found {verdict}, not {CHECKPOINT_STATES} states and no error")
    return f"{verdict.states} states"


def every_edge_is_taken() -> str:
    """No edge of a table is dead wood, and none has escaped the checks: some world takes it."""
    missed = [f"{name}: {edge.source}, {edge.event} {edge.when}" for name, edge in never_taken()]
    if missed:
        raise Broken(f"taken by no world: {missed}")
    return f"{sum(len(table.edges) for table in MACHINES.values())} edges"


def owner_meets_everything(scenario: Scenario) -> str:
    """The worlds of the owner are not vacuous: every state of every machine, and every edge, is met."""
    world = owner.World(scenario)
    report: Report[Owner] = explore(owner.initial(scenario), world.successors, {})
    met = {(name, getattr(state, name)) for state in report.graph.states for name in owner.TABLES}
    missed = [pair for name, table in owner.TABLES.items() for pair in ((name, state) for state in table.states) if pair not in met]
    missed = [pair for pair in missed if pair not in (("token", "joining"), ("token", "clearing"))]  # within one step; under a budget only
    if missed:
        raise Broken(f"never met: {missed}")
    return f"{len(met)} states of machines"


def mistake_is_caught(mistake: Mistake) -> str:
    found = mistake.find()
    if found is None:
        raise Broken("not caught")
    claim, path = found
    if (claim, len(path)) != (mistake.claim, mistake.steps):
        raise Broken(f"caught by {claim!r} in {len(path)} steps, not by {mistake.claim!r} in {mistake.steps}: {path}")
    return f"caught by {claim!r} in {len(path)} steps"


def _all_pass(report: Report, passing: Mapping[str, Predicate], group: Group) -> None:
    for name, region in passing.items():
        lasso = fair_lasso(report.graph, region, group)
        if lasso is not None:
            raise Broken(f"{name} may last for ever: {lasso}")


def runs_hold(first: int, count: int) -> str:
    handoffs = 0
    for seed in range(first, first + count):
        outcome = examine(seed)
        if outcome.problem:
            raise Broken(f"seed {seed}: {outcome.problem}; see python -m specs.simulate --seed {seed}")
        handoffs += outcome.handoffs
    return f"{count} seeds, {handoffs} handoffs"


def _seen(report: Report, states: int, transitions: int | None = None) -> str:
    for name, path in report.problems.items():
        raise Broken(f"{name}: {path}")
    counted = (report.state_count, report.transition_count)
    if counted != (states, counted[1] if transitions is None else transitions):
        raise Broken(f"{counted}, not {(states, transitions)}: a table or a world has changed; if that is right, change the number")
    return f"{counted[0]} states, {counted[1]} transitions"


REQUESTS = Scenario(clients=2, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False)
IDLE_OFF = Scenario(clients=2, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False, idle_sleep=False)
THREE = Scenario(clients=3, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False)
CALLS = Scenario(clients=2, inbox_limit=2, load_calls=False)
LIFE = Scenario(clients=1, inbox_limit=2, weights_get_lost=True)
LIFE_KEEP_KV = Scenario(clients=2, inbox_limit=1, evict_kv=False)

BUDGET = Scenario(clients=1, inbox_limit=2, load_calls=False, rest_calls=False, wake_calls=False, evict_kv=False, budget=True)
BUDGET_LIFE = Scenario(clients=1, inbox_limit=1, evict_kv=False, wake_calls=False, budget=True)

SLOW_TO_CATCH = (
    "no second look when the one ahead is gone",
    "ticket files are used again",
    "rest is told while SLEEP still wakes",
    "a model is freed without the answer to a move under way",
    "the memory of a dead process stays for ever",
    "the whole prompt is taken from the cache, and nothing gives logits",
    "equal times of use select no slot",
    "whoever came last is served first",
    "prompts go before tokens",
    "a full list takes no new snapshot",
    "after going back, snapshots of what was left stay",
)

CLAIMS = (
    Claim("every table is total, unambiguous and alive", "S2", tables_are_sound),
    Claim("line, 2 processes, explorer", "S1 S3 S10", partial(line_is_explored, 2)),
    Claim("line, 3 processes, explorer", "S1 S3 S10", partial(line_is_explored, 3), slow=True),
    Claim("line, 2 processes, SPIN", "S1 S10", partial(spin_counts, 2), slow=True, spin=True),
    Claim("line, 3 processes, SPIN", "S1 S10", partial(spin_counts, 3), slow=True, spin=True),
    Claim("line, 4 processes, one state of each kind, explorer", "S1 S3 S10", partial(line_is_counted, 4), slow=True, huge=True),
    Claim("line, 4 processes, SPIN", "S1 S10", partial(spin_counts, 4), slow=True, spin=True, huge=True),
    *(
        Claim(f"a ticket leads to the token: {words}", "S1", partial(ticket_is_served, n, defines, errors), slow=True, spin=True)
        for words, n, defines, errors in (
            ("2 processes, busy holder", 2, (), 0),
            ("2 processes, idle holder", 2, ("-DIDLE",), 0),
            ("2 processes, one of the others gives up or dies twice", 2, ("-DESCAPES=2",), 0),
            ("2 processes, no ring is lost and nobody looks now and then", 2, ("-DSURE_RINGS", "-DNO_SLOW_CHECK", "-DIDLE"), 0),
            ("3 processes, one of the others gives up or dies", 3, ("-DESCAPES=1",), 0),
            ("must fail: a lost ring and nobody looks now and then", 2, ("-DNO_SLOW_CHECK", "-DIDLE"), 1),
            ("must fail: a holder that yields only when idle", 2, ("-DYIELD_IDLE",), 1),
        )
    ),
    *(
        Claim(f"budget, {words}, explorer", "S1 S3 S10 P5 P11", partial(budget_is_explored, *counted), slow=True)
        for words, counted in BUDGETS.items()
    ),
    *(
        Claim(f"budget, {words}, SPIN", "S1 S10 P11", partial(spin_counts_budget, *counted), slow=True, spin=True)
        for words, counted in BUDGETS.items()
    ),
    Claim("budget, who waits comes to be awake", "S1 P5", room_is_found, slow=True, spin=True),
    Claim("budget, must fail: who is busy stays", "S1 P5", partial(room_is_found, ("-DYIELD_IDLE",), 1), slow=True, spin=True),
    Claim("owner, 2 clients", "S2 S6 S10", partial(owner_is_explored, REQUESTS, 11_224)),
    Claim("owner, 2 clients, idle sleep off", "S2 S8", partial(owner_is_explored, IDLE_OFF, 4_341)),
    Claim("owner, 3 clients", "S2 S10", partial(owner_is_explored, THREE, 46_355), slow=True),
    Claim("owner, 2 clients, wake and sleep calls", "S2 S10", partial(owner_is_explored, CALLS, 36_876), slow=True),
    Claim("owner, 1 client, load, unload, wake and sleep calls", "S2 S7", partial(owner_is_explored, LIFE, 93_344), slow=True),
    Claim("owner, 2 clients, all calls, KV cache stays", "S2 S7 S9", partial(owner_is_explored, LIFE_KEEP_KV, 25_756), slow=True),
    Claim("owner under a budget, 1 client", "S2 S6 S10", partial(owner_is_explored, BUDGET, 12_032), slow=True),
    Claim("owner under a budget, 1 client, load and sleep calls", "S2 S7", partial(owner_is_explored, BUDGET_LIFE, 12_114), slow=True),
    Claim("owner, every state of every machine is met", "S2", partial(owner_meets_everything, LIFE), slow=True),
    *(Claim(f"slots, 2 slots, {name}", "S2 P2 P13", partial(slots_are_explored, name), slow=True) for name in SLOT_SCENARIOS),
    *(
        Claim(f"slots, 2 slots, {name}, SPIN", "P2 P13", partial(spin_counts_slots, name), slow=True, spin=True)
        for name in SLOT_SCENARIOS
    ),
    Claim("snapshots, 1 slot", "S6 S11", partial(checkpoints_are_explored, checkpoints.Scenario(), CHECKPOINT_STATES), slow=True),
    Claim(
        "snapshots, 1 slot, and a prompt in host memory", "S6 S11 D.2",
        partial(checkpoints_are_explored, checkpoints.Scenario(length=2, stash=True), STORED_STATES), slow=True,
    ),
    Claim(
        "snapshots, 1 slot, and guesses of a draft model", "S19 S22",
        partial(checkpoints_are_explored, checkpoints.Scenario(length=2, guesses=True), GUESSED_STATES), slow=True,
    ),
    *(Claim(f"encoder that {name}", "S5", partial(encoder_is_explored, scenario, n)) for scenario, (name, _, n) in ENCODERS.items()),
    *(
        Claim(f"encoder that {name}, SPIN", "S5", partial(spin_counts_encoder, defines, n), slow=True, spin=True)
        for name, defines, n in ENCODERS.values()
    ),
    Claim("snapshots, 1 slot, SPIN", "S11", spin_counts_checkpoints, slow=True, spin=True),
    *(
        Claim(f"simulated runs, seeds {first} to {first + 49}", "S1 S2 S3 S7 S8 S10 P2 P5 P12", partial(runs_hold, first, 50), slow=True)
        for first in range(0, 200, 50)
    ),
    *(
        Claim(f"simulated runs under a budget, seeds {first} to {first + 49}", "S1 S10 P5 P11", partial(runs_hold, first, 50), slow=True)
        for first in (BUDGET_SEEDS, BUDGET_SEEDS + 50)
    ),
    Claim("every edge of every table is taken by some world", "S2", every_edge_is_taken, slow=True),
    *(
        Claim(f"planted: {mistake.name}", mistake.about, partial(mistake_is_caught, mistake), slow=mistake.name in SLOW_TO_CATCH)
        for mistake in PLANTED.values()
    ),
)
