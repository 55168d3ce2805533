"""Runs SPIN on a world.  Needs `spin` and a C compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from lsm.machines.checkpoint import CHECKPOINT
from lsm.machines.encoder import ENCODER
from lsm.machines.request import REQUEST
from lsm.machines.residency import RESIDENCY
from lsm.machines.slot import SLOT
from lsm.machines.table import Machine
from lsm.machines.token import TOKEN
from specs.promela import promela, promela_calls, promela_messages
from specs.worlds.budget import KERNEL as BUDGET_KERNEL
from specs.worlds.budget_state import Scenario
from specs.worlds.owner import TABLES as OWNER_TABLES
from specs.worlds.owner import tell_of
from specs.worlds.owner_state import Scenario as OwnerScenario
from specs.worlds.token import KERNEL

WORLD = Path(__file__).parent / "worlds" / "token.pml"
SLOTS_WORLD = WORLD.with_name("slots.pml")
CHECKPOINTS_WORLD = WORLD.with_name("checkpoints.pml")
ENCODER_WORLD = WORLD.with_name("encoder.pml")
OWNER_WORLD = WORLD.with_name("owner.pml")
BUDGET_WORLD = WORLD.with_name("budget.pml")
OPTIMISE = {2: "-O0", 3: "-O1"}  # of the C compiler, for N processes: small worlds are checked sooner than they are compiled
TABLE_LOG2 = {4: 25}  # of the table of states
DEPTH = {4: 20_000_000}  # of the search, which is an error when it is too small
AT_ONCE = ("hold_start", "quantum_start", "quantum_stop")
REMEDY = "SPIN is missing: apt-get install -y --no-install-recommends spin gcc libc6-dev"


class SpinError(Exception):
    """SPIN did not give a verdict; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Verdict:
    states: int
    transitions: int
    errors: int


def available() -> bool:
    return shutil.which("spin") is not None and shutil.which("gcc") is not None


def count_states(n: int, table: Machine = TOKEN) -> Verdict:
    """Every state of the line with `n` processes, without reduction; assertions are checked on the way."""
    return _count(
        WORLD,
        promela(table, KERNEL, AT_ONCE),
        [f"-DN={n}"],
        OPTIMISE.get(n, "-O2"),
        TABLE_LOG2.get(n, 22),
        DEPTH.get(n, 2_000_000),
    )


def check_served(n: int, defines: Sequence[str] = (), table: Machine = TOKEN) -> Verdict:
    """Whoever has a ticket gets the token, on every run that is weakly fair to every process, clock and load."""
    tables = promela(table, KERNEL, AT_ONCE)
    return _check(WORLD, tables, [f"-DN={n}", *defines], ("served",), OPTIMISE.get(n, "-O2"))["served"]


def count_slots(defines: Sequence[str] = (), request: Machine = REQUEST, slot: Machine = SLOT) -> Verdict:
    """Every state of two slots and three requests; assertions are checked on the way."""
    return _count(SLOTS_WORLD, promela_calls(slot, "s") + promela_calls(request, "r"), defines)


def count_checkpoints(table: Machine = CHECKPOINT) -> Verdict:
    """Every state of a slot and its snapshots; assertions are checked on the way."""
    return _count(CHECKPOINTS_WORLD, promela_calls(table, "s"))


def count_encoder(defines: Sequence[str] = (), encoder: Machine = ENCODER, residency: Machine = RESIDENCY) -> Verdict:
    """Every state of an encoder, its model's residency and two requests; assertions are checked on the way."""
    return _count(ENCODER_WORLD, promela_calls(encoder, "e") + promela_calls(residency, "r"), defines)


def count_owner(scenario: OwnerScenario, *mutants: Machine) -> Verdict:
    """Every state of one model's owner; assertions are checked on the way."""
    return _count(OWNER_WORLD, _owner_tables(mutants), _owner_defines(scenario))


def check_owner(scenario: OwnerScenario, properties: Sequence[str], *mutants: Machine) -> dict[str, Verdict]:
    """What each property of worlds/owner.pml names comes to an end, on every run that is fair as specs/worlds/owner_claims.py says."""
    return _check(OWNER_WORLD, _owner_tables(mutants), _owner_defines(scenario), properties)


def _owner_defines(scenario: OwnerScenario) -> list[str]:
    values = {name.upper(): int(value) for name, value in asdict(scenario).items() if name != "mistake"}
    return [f"-D{name}={value}" for name, value in values.items()]


def _owner_tables(mutants: Sequence[Machine]) -> str:
    tables = list((OWNER_TABLES | {table.name: table for table in mutants}).values())
    tells = {(table.name, effect): told for table in tables for effect in table.effects if (told := tell_of(table, effect))}
    return promela_messages(tables, tells) + "".join(promela_calls(table, table.name[0]) for table in tables)


def count_budget(scenario: Scenario, table: Machine = TOKEN) -> Verdict:
    """Every state of processes under a budget; assertions are checked on the way."""
    return _count(BUDGET_WORLD, _budget_table(table), _budget_defines(scenario))


def check_room(scenario: Scenario, defines: Sequence[str] = (), table: Machine = TOKEN) -> Verdict:
    """Whoever waits comes to be awake, on every run that is weakly fair to every process, clock and load."""
    return _check(BUDGET_WORLD, _budget_table(table), [*_budget_defines(scenario), *defines], ("served",))["served"]


def _budget_defines(scenario: Scenario) -> list[str]:
    sizes = [f"-DN={scenario.n}", f"-DBUDGET={scenario.budget}", f"-DLEAVES={scenario.leaves}", f"-DSTAYS={scenario.stays}"]
    happens = {"NO_CRASH": scenario.crash, "NO_ESCAPES": scenario.escapes, "SURE_RINGS": scenario.rings_lost, "IDLE": scenario.serves}
    return [*sizes, *(f"-D{name}" for name, yes in happens.items() if not yes)]


def _budget_table(table: Machine) -> str:
    nothing = [f"#define do_{effect}(i) skip\n" for effect in table.effects if effect not in (*BUDGET_KERNEL, *AT_ONCE)]
    return "".join(nothing) + promela_calls(table, "p")


def _count(
    world: Path, tables: str, defines: Sequence[str] = (), optimise: str = "-O0", table_log2: int = 22, depth: int = 2_000_000
) -> Verdict:
    """Safety, without reduction."""
    with _verifier(world, tables, [*defines], [optimise, "-DNOREDUCE", "-DSAFETY", "-DNOCLAIM"]) as folder:
        return _verdict(_call(folder, ["./pan", f"-w{table_log2}", f"-m{depth}"]))


def _check(world: Path, tables: str, defines: Sequence[str], properties: Sequence[str], optimise: str = "-O0") -> dict[str, Verdict]:
    """Liveness under weak fairness; one compiled verifier for all properties."""
    with _verifier(world, tables, ["-DLIVE", *defines], [optimise, "-DNFAIR=4"]) as folder:
        return {name: _verdict(_call(folder, ["./pan", "-a", "-f", "-N", name, "-w22", "-m4000000"])) for name in properties}


@contextmanager
def _verifier(world: Path, tables: str, defines: Sequence[str], flags: Sequence[str]) -> Iterator[str]:
    """A folder with the compiled `pan` of a world and its exported tables."""
    if not available():
        raise SpinError(REMEDY)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(world, folder)
        (Path(folder) / f"{world.stem}_tables.pml").write_text(tables)
        _call(folder, ["spin", "-a", *defines, world.name])
        pan = Path(folder) / "pan.c"
        pan.write_text(pan.read_text().replace("%9.8g", "%9.0f"))  # it would round a count of more than eight digits
        _call(folder, ["gcc", "-w", "-DCOLLAPSE", "-DVECTORSZ=2048", *flags, "-o", "pan", "pan.c"])
        yield folder


def _call(folder: str, command: Sequence[str]) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode != 0 or "max search depth too small" in text or re.search(r"spin: .*[Ee]rror", text):
        raise SpinError(f"{' '.join(command)}\n{text}")
    return text


def _verdict(text: str) -> Verdict:
    found = [re.search(rf"{words}", text) for words in (r"(\d+) states, stored", r"(\d+) transitions", r"errors: (\d+)")]
    states, transitions, errors = (int(match[1]) if match else None for match in found)
    if states is None or transitions is None or errors is None:
        raise SpinError(text)
    return Verdict(states, transitions - 1, errors)  # SPIN counts the step into the initial state, too
