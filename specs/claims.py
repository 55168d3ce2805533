"""Every claim about the machines, and the check that stands for it.  `python -m specs` and tests/specs run the same list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lsm.machines import MACHINES
from lsm.machines.table import lint
from specs import spin
from specs.counts import (
    ALL_FIT,
    BUDGETS,
    ENCODERS,
    GUESSED,
    GUESSES,
    LIFE,
    LINE,
    ONE_FITS,
    OWNERS,
    PASSING,
    SLOTS,
    SNAPSHOTS,
    STASH,
    STORED,
    THREE_FIT,
    Counted,
)
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
    return _seen(report, LINE[n])


def line_is_counted(n: int) -> str:
    """All invariants hold; one state of each kind was visited, and each counted as often as names can be exchanged in it."""
    count = count_orbits(token.initial(n), token.World().successors, canonical, token_claims.INVARIANTS)
    if (count.states, count.transitions) != LINE[n]:
        raise Broken(f"{count}, not {LINE[n]}")
    return f"{count.states} states, {count.transitions} transitions; {count.orbits} visited"


def spin_counts(count: Callable[[], spin.Verdict], counted: Counted) -> str:
    """No assertion fails, and SPIN counts what the explorer counts."""
    verdict = count()
    if verdict != spin.Verdict(*counted, 0):
        raise Broken(f"SPIN found {verdict}, not {counted} states and transitions and no error")
    return f"{verdict.states} states, {verdict.transitions} transitions"


def ticket_is_served(n: int, defines: Sequence[str] = (), errors: int = 0) -> str:
    verdict = spin.check_served(n, defines)
    if verdict.errors != errors:
        raise Broken(f"{verdict}; {errors} errors were expected")
    return f"{verdict.states} states" if not errors else "fails, as it must"


def budget_is_explored(scenario: BudgetScenario, counted: Counted) -> str:
    """All invariants hold; from every state process 0 can become awake, and on every weakly fair run whoever waits does."""
    holds = budget_claims.invariants(scenario)
    if scenario in (ALL_FIT, THREE_FIT):
        holds["nobody is asked to leave"] = budget_claims.all_fit
    report = explore(budget.initial(scenario), budget.World(scenario).successors, holds, budget_claims.GOALS)
    seen = _seen(report, counted)
    _all_pass(report, budget_claims.PASSING, budget_claims.group)
    return seen


def room_is_found(defines: Sequence[str] = (), errors: int = 0) -> str:
    """Under a budget that holds one of two."""
    verdict = spin.check_room(ONE_FITS, defines)
    if verdict.errors != errors:
        raise Broken(f"{verdict}; {errors} errors were expected")
    return f"{verdict.states} states" if not errors else "fails, as it must"


def owner_is_explored(scenario: Scenario, counted: Counted) -> str:
    """All invariants hold, all goals stay in reach, and on every weakly fair run whatever waits or passes comes to an end."""
    world = owner.World(scenario)
    invariants = owner_claims.BUDGET_INVARIANTS if scenario.budget else owner_claims.INVARIANTS
    report = explore(owner.initial(scenario), world.successors, invariants, owner_claims.GOALS)
    seen = _seen(report, counted)
    if scenario == LIFE:
        _meets_everything(report)
    _all_pass(report, owner_claims.BUDGET_PASSING if scenario.budget else owner_claims.PASSING, owner_claims.group)
    return seen


def everything_passes(scenario: Scenario, properties: Sequence[str]) -> str:
    """What the lasso search has found in the explorer's graph, by SPIN in its own."""
    verdicts = spin.check_owner(scenario, properties)
    for name, verdict in verdicts.items():
        if verdict.errors:
            raise Broken(f"{name} may last for ever: {verdict}")
    return f"{len(verdicts)} properties"


def slots_are_explored(scenario: slots_state.Scenario, counted: Counted) -> str:
    """All invariants hold, every request can be done, and on every weakly fair run each ends."""
    report = explore(slots.initial(scenario), slots.World(scenario).successors, slots_claims.INVARIANTS, slots_claims.GOALS)
    seen = _seen(report, counted)
    _all_pass(report, slots_claims.PASSING, slots_claims.group)
    return seen


def checkpoints_are_explored(scenario: checkpoints.Scenario, counted: Counted) -> str:
    """All invariants hold, the slot can become idle and a prompt be done, and on every weakly fair run each prompt ends."""
    world = checkpoints.World(scenario)
    report = explore(checkpoints.initial(scenario), world.successors, checkpoints_claims.INVARIANTS, checkpoints_claims.GOALS)
    seen = _seen(report, counted)
    _all_pass(report, checkpoints_claims.PASSING, checkpoints_claims.group)
    return seen


def encoder_is_explored(scenario: encoder.Scenario, counted: Counted) -> str:
    """All invariants hold, all goals stay in reach, and on every weakly fair run each request, window and leave ends."""
    world = encoder.World(scenario)
    report = explore(encoder.initial(scenario), world.successors, encoder_claims.invariants(scenario), encoder_claims.goals(scenario))
    seen = _seen(report, counted)
    _all_pass(report, encoder_claims.PASSING, encoder_claims.group)
    return seen


def every_edge_is_taken() -> str:
    """No edge of a table is dead wood, and none has escaped the checks: some world takes it."""
    missed = [f"{name}: {edge.source}, {edge.event} {edge.when}" for name, edge in never_taken()]
    if missed:
        raise Broken(f"taken by no world: {missed}")
    return f"{sum(len(table.edges) for table in MACHINES.values())} edges"


def _meets_everything(report: Report[Owner]) -> None:
    """The worlds of the owner are not vacuous: every state of every machine is met."""
    met = {(name, getattr(state, name)) for state in report.graph.states for name in owner.TABLES}
    missed = {(name, state) for name, table in owner.TABLES.items() for state in table.states} - met
    missed -= {("token", "joining"), ("token", "clearing")}  # within one step; under a budget only
    if missed:
        raise Broken(f"never met: {missed}")


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


def _seen(report: Report, counted: Counted) -> str:
    for name, path in report.problems.items():
        raise Broken(f"{name}: {path}")
    seen = (report.state_count, report.transition_count)
    if seen != counted:
        raise Broken(f"{seen}, not {counted}: a table or a world has changed; if that is right, change the numbers in counts.py")
    return f"{seen[0]} states, {seen[1]} transitions"


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


def _twin(name: str, about: str, count: Callable[[], spin.Verdict], counted: Counted, huge: bool = False) -> Claim:
    return Claim(f"{name}, SPIN", about, partial(spin_counts, count, counted), slow=True, spin=True, huge=huge)


CLAIMS = (
    Claim("every table is total, unambiguous and alive", "S2", tables_are_sound),
    Claim("line, 2 processes, explorer", "S1 S3 S10", partial(line_is_explored, 2)),
    Claim("line, 3 processes, explorer", "S1 S3 S10", partial(line_is_explored, 3), slow=True),
    _twin("line, 2 processes", "S1 S10", partial(spin.count_states, 2), LINE[2]),
    _twin("line, 3 processes", "S1 S10", partial(spin.count_states, 3), LINE[3]),
    Claim("line, 4 processes, one state of each kind, explorer", "S1 S3 S10", partial(line_is_counted, 4), slow=True, huge=True),
    _twin("line, 4 processes", "S1 S10", partial(spin.count_states, 4), LINE[4], huge=True),
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
        Claim(f"budget, {words}, explorer", "S1 S3 S10 P5 P11", partial(budget_is_explored, scenario, counted), slow=True)
        for words, (scenario, counted) in BUDGETS.items()
    ),
    *(
        _twin(f"budget, {words}", "S1 S10 P11", partial(spin.count_budget, scenario), counted)
        for words, (scenario, counted) in BUDGETS.items()
    ),
    Claim("budget, who waits comes to be awake", "S1 P5", room_is_found, slow=True, spin=True),
    Claim("budget, must fail: who is busy stays", "S1 P5", partial(room_is_found, ("-DYIELD_IDLE",), 1), slow=True, spin=True),
    *(
        Claim(f"owner, {words}, explorer", about, partial(owner_is_explored, scenario, counted), slow=counted[0] > 10_000)
        for words, (about, scenario, counted) in OWNERS.items()
    ),
    *(
        _twin(f"owner, {words}", about, partial(spin.count_owner, scenario), counted)
        for words, (about, scenario, counted) in OWNERS.items()
    ),
    *(
        Claim(
            f"owner, {words}, nothing lasts for ever, SPIN", "S2 P2 P5", partial(everything_passes, scenario, names), slow=True, spin=True
        )
        for words, (scenario, names) in PASSING.items()
    ),
    *(
        Claim(f"slots, 2 slots, {words}, explorer", "S2 P2 P13", partial(slots_are_explored, scenario, counted), slow=True)
        for words, (scenario, _, counted) in SLOTS.items()
    ),
    *(
        _twin(f"slots, 2 slots, {words}", "P2 P13", partial(spin.count_slots, defines), counted)
        for words, (_, defines, counted) in SLOTS.items()
    ),
    Claim("snapshots, 1 slot, explorer", "S6 S11", partial(checkpoints_are_explored, checkpoints.Scenario(), SNAPSHOTS), slow=True),
    _twin("snapshots, 1 slot", "S11", spin.count_checkpoints, SNAPSHOTS),
    Claim(
        "snapshots, 1 slot, and guesses of a draft model, explorer",
        "S19 S22",
        partial(checkpoints_are_explored, GUESSES, GUESSED),
        slow=True,
    ),
    Claim(
        "snapshots, 1 slot, and a prompt in host memory, explorer",
        "S6 S11 D.2",
        partial(checkpoints_are_explored, STASH, STORED),
        slow=True,
    ),
    *(
        Claim(f"encoder that {words}, explorer", "S5", partial(encoder_is_explored, scenario, counted))
        for words, (scenario, _, counted) in ENCODERS.items()
    ),
    *(
        _twin(f"encoder that {words}", "S5", partial(spin.count_encoder, defines), counted)
        for words, (_, defines, counted) in ENCODERS.items()
    ),
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
